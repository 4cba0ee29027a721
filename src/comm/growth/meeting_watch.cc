#include "comm/growth/meeting_watch.h"

#include <exception>

#include "base/log.h"
#include "bootstrap/door/newcomer.h"
#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/store/tcp_store.h"
#include "comm/growth/grown_group.h"
#include "os/process.h"

namespace qccl::internal {
namespace {

constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(10);
constexpr Nanoseconds kTellWithin = std::chrono::seconds(3);
// A meeting place serves one attempt to meet.
constexpr std::uint64_t kGeneration = 1;

Status end_meeting(const bootstrap::Seat& seat, const comm::Settings& settings, const std::string& lost) {
  const Clock& clock = steady_clock();
  const TimePoint deadline = saturating_add(clock.now(), kTellWithin);
  QCCL_ASSIGN(const std::string address, bootstrap::reachable_address(seat.addresses, seat.port, deadline, clock));
  bootstrap::TcpStore store({.host = address,
                             .port = seat.port,
                             .deadline = deadline,
                             .clock = &clock,
                             .secrets = {settings.protection.key, seat.job, 0},
                             .rank = seat.rank,
                             .retries = false});
  bootstrap::KeySpace keys(store, seat.job, 0, clock);
  return bootstrap::end_generation(keys, kGeneration, lost);
}

}  // namespace

MeetingWatch::MeetingWatch(const bootstrap::Seat& seat, const comm::Settings& settings, FindLost find_lost)
    : thread_(os::start_thread("qccl-meeting", [this, seat, settings, find_lost = std::move(find_lost)] {
        run(seat, settings, find_lost);
      })) {}

MeetingWatch::~MeetingWatch() {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

// A meeting that could not be ended ends when its time is up.
void MeetingWatch::run(const bootstrap::Seat& seat, const comm::Settings& settings, const FindLost& find_lost) {
  std::unique_lock lock(mutex_);
  while (!ends_.wait_for(lock, kLookEvery, [this] { return has_ended_; })) {
    lock.unlock();
    try {
      if (const auto lost = find_lost()) {
        const Status ended = end_meeting(seat, settings, *lost);
        if (!ended.ok()) log(LogLevel::warning, "grow() waits for a lost rank: " + ended.error().message);
        return;
      }
    } catch (const std::exception&) {  // there is no memory now
    }
    lock.lock();
  }
}

}  // namespace qccl::internal
