// A process that waits at the doors of an open job (door.h) until its group grows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/door/door.h"

namespace qccl::bootstrap {

struct DoorAddress {
  std::string host;
  std::uint16_t port = 0;
};

// "10.0.0.1:40000,[fd00::1]:40000". InvalidArgument, with the name of the setting, for anything else.
Result<std::vector<DoorAddress>> parse_doors(std::string_view text, const std::string& source);

class Newcomer {
 public:
  // `doors`: members of the job. The clock outlives the object, and everything ends at the deadline.
  Newcomer(std::vector<DoorAddress> doors, const std::string& job, std::shared_ptr<const secure::Key> key,
           TimePoint deadline, const Clock& clock);

  // Waits at one door after another until a member gives a seat. DeadlineExceeded says what was wrong with each door;
  // InvalidArgument: the job has another key. After each seat, call settle().
  Result<Seat> wait_for_seat();
  // Whether the members let this process in: they do if the meeting went `well` for all of them. If not, or if it did
  // not go well here, the next call of wait_for_seat() waits again.
  bool settle(bool well);

 private:
  Status knock();
  Status try_door(const DoorAddress& door);
  void leave_door(const std::string& why);
  Result<std::optional<Seat>> take_turn();
  Failure out_of_time() const;

  const std::vector<DoorAddress> doors_;
  const std::string name_;
  const StoreSecrets secrets_;
  const TimePoint begin_;
  const TimePoint deadline_;
  const Clock& clock_;
  std::size_t next_ = 0;               // of doors_
  std::vector<std::string> failures_;  // of each door; "" for one that let this process wait
  std::unique_ptr<TcpStore> store_;    // of the door; null: before none
  std::optional<KeySpace> keys_;
  std::int64_t ticket_ = 0;
  int round_ = 1;
};

// The first of the addresses at which something listens, tried one after the other.
Result<std::string> reachable_address(const std::vector<std::string>& addresses, std::uint16_t port, TimePoint deadline,
                                      const Clock& clock);

}  // namespace qccl::bootstrap
