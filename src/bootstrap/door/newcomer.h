// A process that waits at the doors of an open job (door.h) until its group grows.
//
// It waits at one door at a time. A door's thread answers whatever its member does, so one that does not answer is a
// stopped member's, or cut off: the newcomer goes to the next.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/protocol/formats.h"
#include "bootstrap/protocol/key_space.h"
#include "bootstrap/store/tcp_store.h"

namespace qccl::bootstrap {

struct DoorAddress {
  std::string host;
  std::uint16_t port = 0;
  friend bool operator==(const DoorAddress&, const DoorAddress&) = default;
};

// Where a newcomer looks for doors.
struct DoorSource {
  // Called until the deadline while there are none, and again whenever all were tried in vain.
  std::function<Result<std::vector<DoorAddress>>()> find;
  bool is_list = false;  // the store's (door_list.h): doors may have closed, and other jobs may have their ports
};

// Members of the job that are known.
DoorSource fixed_doors(std::vector<DoorAddress> doors);

// "10.0.0.1:40000,[fd00::1]:40000". InvalidArgument, with the name of the setting, for anything else.
Result<std::vector<DoorAddress>> parse_doors(std::string_view text, const std::string& source);

class Newcomer {
 public:
  // The clock outlives the object, and everything ends at the deadline.
  Newcomer(DoorSource source, const std::string& job, std::shared_ptr<const secure::Key> key, TimePoint deadline,
           const Clock& clock);

  // Makes the card by which the others reach this process, which waits at the door of that host.
  using MakeCard = std::function<Result<std::string>(const std::string& host)>;

  // Waits at one door after another until a member gives a seat. DeadlineExceeded says what was wrong with each door;
  // InvalidArgument: the job has another key. Fails as `make_card` too, which is called for each round. After each
  // seat, call settle().
  Result<Seat> wait_for_seat(const MakeCard& make_card);
  // After a seat: fails once the members have given the meeting up, or the door is lost.
  Status look();
  // Whether the members let this process in: they do if the meeting went `well` for all of them. If not, or if it did
  // not go well here, the next call of wait_for_seat() waits again.
  bool settle(bool well);

 private:
  Status look_for_doors();
  Status knock();
  Status try_door(const DoorAddress& door);
  void leave_door(const std::string& why);
  Result<std::optional<std::string>> await(const std::string& name);
  Result<std::optional<Seat>> take_turn(const std::string& card);
  Failure out_of_time() const;

  const DoorSource source_;
  const std::string name_;
  const StoreSecrets secrets_;
  const TimePoint begin_;
  const TimePoint deadline_;
  const Clock& clock_;
  std::vector<DoorAddress> doors_;     // found last
  std::string no_doors_;               // why there are none
  std::size_t next_ = 0;               // of doors_
  std::vector<std::string> failures_;  // of each door; "" for one that let this process wait
  std::unique_ptr<TcpStore> store_;    // of the door; null: before none
  std::optional<KeySpace> keys_;
  std::int64_t ticket_ = 0;
  int round_ = 1;
};

}  // namespace qccl::bootstrap
