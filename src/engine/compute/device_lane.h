// One lane of a call that a device computes: the steps of its slices become jobs (kernels/device/slice_job.h).
//
// A step that receives copies its payload to pinned memory, so that its frame is free at once; a payload that a job
// makes is there to be sent once the host has seen the job's end.
#pragma once

#include <vector>

#include "engine/compute/device_slices.h"
#include "engine/staged/device_jobs.h"

namespace qccl::engine {

// Its functions are those of Compute and LaterWork. One thread.
class DeviceLane {
 public:
  // The call outlives it.
  DeviceLane(const DeviceCall& call, std::size_t lane);

  void begin();
  void begin_slice(std::uint64_t slice);
  bool has_room() const;
  bool begin_payload(std::size_t step);
  ConstBytes find_payload(std::uint64_t slice) const;
  void note_sent(std::uint64_t slice);
  Status receive(std::size_t step, ConstBytes payload);
  void local(std::size_t step);
  // The payload of the last receive(), for forward.
  ConstBytes received() const { return received_; }

 private:
  using Job = kernels::device::SliceJob;

  // Of a slice on its way.
  struct Slice {
    DeviceJobs::Ticket last = 0;     // of its jobs
    DeviceJobs::Ticket payload = 0;  // of the job that makes it
    int unsent = 0;                  // steps that are yet to send it
  };

  Slice& current() { return slices_[slice_ % slices_.size()]; }
  void add(const Job& job, bool follows);
  void add_part(const kernels::device::Source& part);
  void make_payload(Job& job, bool raw, std::uint64_t random_key);
  void send_input(std::size_t step);
  void finish(std::size_t step);
  void copy_own(std::size_t step);

  const DeviceCall& call_;
  const plan::Lane& plan_;
  const DeviceLayout::Lane& places_;
  const DeviceSlices memory_;
  std::vector<Slice> slices_;
  std::uint64_t slice_ = 0;
  Job sum_{};                 // of the slice so far
  bool sum_follows_ = false;  // a part of it was added by a job before
  ConstBytes received_{};
};

}  // namespace qccl::engine
