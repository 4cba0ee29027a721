// Ends the meeting of a grown job when one of its ranks is lost. Otherwise the others would wait for it until the
// meeting's time is up.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "bootstrap/protocol/formats.h"
#include "job/context.h"

namespace qccl::internal {

class MeetingWatch {
 public:
  // Names a lost rank for people; empty if none is lost.
  using FindLost = std::function<std::optional<std::string>()>;

  // Until the object ends, a thread calls `find_lost` every few milliseconds. The first one lost ends the meeting on
  // all its ranks, this one included. `settings` are as meet() takes them.
  MeetingWatch(const bootstrap::Seat& seat, const comm::Settings& settings, FindLost find_lost);
  ~MeetingWatch();
  MeetingWatch(const MeetingWatch&) = delete;
  MeetingWatch& operator=(const MeetingWatch&) = delete;

 private:
  void run(const bootstrap::Seat& seat, const comm::Settings& settings, const FindLost& find_lost);

  std::mutex mutex_;
  std::condition_variable ends_;
  bool has_ended_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace qccl::internal
