// Which of a lane's slices have jobs under way on a device, or a payload that is yet to be sent.
//
// As many slices may as there are places for their memory; each takes the place of one that many before it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/log.h"
#include "device_engine/staged/device_jobs.h"

namespace qccl::engine {

// One thread.
class SliceTickets {
 public:
  explicit SliceTickets(std::size_t places) : slices_(places) {}

  // The jobs are those of the call that begins, and outlive it.
  void begin(DeviceJobs& jobs) {
    jobs_ = &jobs;
    slice_ = 0;
    std::ranges::fill(slices_, Slice{});
  }
  // The lane goes on to this slice.
  void begin_slice(std::uint64_t slice) {
    QCCL_CHECK(slice >= slice_);
    slice_ = slice;
  }
  std::uint64_t slice() const { return slice_; }

  // Adds a job of the slice that the lane is at. It follows the slice's jobs that have not ended: it may overwrite what
  // they read, or read what they write.
  void add(const kernels::device::SliceJob& job) { of(slice_).last = jobs_->add(job, !has_ended(slice_)); }
  // The slice has a payload, made by its last job; a step sends that.
  void note_payload() { of(slice_).payload = of(slice_).last; }
  void note_unsent() { ++of(slice_).unsent; }
  void note_sent(std::uint64_t slice) {
    QCCL_CHECK(slice <= slice_ && of(slice).unsent > 0);
    --of(slice).unsent;
  }

  bool has_payload(std::uint64_t slice) const { return jobs_->has_ended(of(slice).payload); }
  // The place of the slice is not used by the one that had it before.
  bool has_place(std::uint64_t slice) const {
    return slice >= slice_ && slice < slice_ + slices_.size() && of(slice).unsent == 0 && has_ended(slice);
  }
  // All of its steps were taken, and what they began has ended. Only until its place was given away.
  bool is_done(std::uint64_t slice) const { return slice < slice_ && has_ended(slice); }

 private:
  struct Slice {
    DeviceJobs::Ticket last = 0;     // of its jobs
    DeviceJobs::Ticket payload = 0;  // of the job that makes it
    int unsent = 0;                  // steps that are yet to send it
  };

  Slice& of(std::uint64_t slice) { return slices_[slice % slices_.size()]; }
  const Slice& of(std::uint64_t slice) const { return slices_[slice % slices_.size()]; }
  bool has_ended(std::uint64_t slice) const { return jobs_->has_ended(of(slice).last); }

  DeviceJobs* jobs_ = nullptr;
  std::vector<Slice> slices_;
  std::uint64_t slice_ = 0;
};

}  // namespace qccl::engine
