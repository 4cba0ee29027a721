#include "group/growth/meeting_watch.h"

#include <exception>

#include "base/log.h"
#include "group/growth/grown_group.h"
#include "os/process.h"

namespace qccl::internal {
namespace {

constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(10);

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
