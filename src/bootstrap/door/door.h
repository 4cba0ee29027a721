// The door of an open job: where a member lets newcomers wait until its group grows.
//
// It is a store (tcp_store_server.h) that the member serves for as long as the job lasts. A newcomer takes a ticket T
// and waits; the member calls it, in rounds of that ticket, and gives it a seat if it answers (waiting_room.h; the keys
// are in protocol/keys.h). With a key only processes that have it reach the store. Without one whoever reaches the port
// may come in.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/door/waiting_room.h"
#include "bootstrap/protocol/formats.h"
#include "bootstrap/store/tcp_store_server.h"
#include "secure/key.h"

namespace qccl::bootstrap {

struct DoorOptions {
  std::string job;         // its name, the same for newcomers
  std::uint16_t port = 0;  // 0: the system chooses, as it does if another process has the port
  std::string interface_filter{};
  std::string filter_source{};
  std::shared_ptr<const secure::Key> key{};
};

// Thread-safe. One thread at a time has called newcomers.
class Door {
 public:
  class Called;

  // Opens the door. InvalidArgument if no interface passes the filter.
  static Result<std::shared_ptr<Door>> open(const DoorOptions& options);

  // "10.0.0.1:40000", or several with commas, for QCCL_JOIN.
  const std::string& address() const { return address_; }

  // Calls all newcomers but those that were silent before, and waits for them until `deadline`. Blocks while another
  // thread has called some.
  Called call(TimePoint deadline);
  // For the store that this process has served since the start, which newcomers read (door_list.h): it ends with the
  // door.
  void keep(std::unique_ptr<TcpStoreServer> start_store) { start_store_ = std::move(start_store); }
  // Blocks until a newcomer comes that has not been called yet, at most until `deadline`.
  void wait_for_another(TimePoint deadline) const { room_->await_uncalled(deadline); }

 private:
  Door(std::shared_ptr<WaitingRoom> room, std::unique_ptr<TcpStoreServer> server, std::string address)
      : room_(std::move(room)), server_(std::move(server)), address_(std::move(address)) {}

  const std::shared_ptr<WaitingRoom> room_;
  const std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<TcpStoreServer> start_store_;
  const std::string address_;
  std::mutex calling_;  // held by Called
};

// Newcomers that have answered, in the order of their tickets, and the right to seat them. Those without a seat at its
// end, and those who were not admitted, are told to wait on.
class Door::Called {
 public:
  Called(Called&& other) noexcept = default;
  Called& operator=(Called&&) = delete;
  ~Called();

  std::size_t size() const { return answers_.size(); }
  // How to reach the newcomer, encoded.
  const std::string& record(std::size_t index) const { return answers_.at(index).record; }
  // Gives the next newcomer its seat.
  void seat(const Seat& seat);
  // Whether a newcomer with a seat has ended since.
  bool has_lost_one() const;
  // Those with seats are members now.
  void admit();

 private:
  friend class Door;
  explicit Called(Door& door) : door_(&door), lock_(door.calling_) {}

  Door* door_;
  std::unique_lock<std::mutex> lock_;  // moved from: another object answers
  std::vector<WaitingRoom::Answer> answers_;
  std::size_t seated_ = 0;  // the first ones
};

}  // namespace qccl::bootstrap
