// One lane of a call that a device computes: the steps of its slices become jobs (kernels/device/slice_job.h).
//
// A step that receives leaves its payload where the device can read it, in a frame or where it was placed, and copies
// it to pinned memory otherwise, so that its frame is free at once. A payload that a job makes, in frames or in pinned
// memory, is there to be sent once the host has seen the job's end.
#pragma once

#include <span>
#include <vector>

#include "device_engine/lanes/device_slices.h"
#include "device_engine/lanes/slice_tickets.h"
#include "engine/compute/compute.h"

namespace qccl::engine {

// Where the device reads the payloads that arrive.
class Arrivals {
 public:
  // Returns where the device has the payload if it reaches it, else `place`, in pinned memory, to which it copies it.
  const std::byte* bring(const StagingDevice& device, ConstBytes payload, std::byte* place);
  void pass_on(ConstBytes payload) {
    last_ = payload;
    stays_ = false;
  }
  ConstBytes last() const { return last_; }
  // The device reads the last one where it arrived.
  bool last_stays() const { return stays_; }

 private:
  ConstBytes last_{};
  bool stays_ = false;
};

// One thread. What the functions have in common with those of Compute is said there.
class DeviceLane {
 public:
  static constexpr std::size_t kMostFrames = 7;  // to which one job writes its payload, besides pinned memory

  // The call outlives it.
  DeviceLane(DeviceCall& call, std::size_t lane);

  void begin();
  void begin_slice(std::uint64_t slice);
  const SliceTickets& tickets() const { return tickets_; }
  // It may take the first step of its slice; if not, it may after a DeviceCompute::look() that was true, or a
  // note_sent().
  bool has_room() const { return tickets_.has_place(slice()); }
  // begin_payload() can write to frames.
  bool takes_frames(std::size_t step) const;
  // Begins the payload of a send step, for all of its peers, unless it is one of Compute::outgoing(): then false.
  // `frames`: of the first kMostFrames peers, where it is written besides; null for those without.
  bool begin_payload(std::size_t step, std::span<const Bytes> frames);
  // Where that payload, of which a slice has one, lies for peers without a frame, with the most bytes that it has;
  // data() is null while it is being made.
  ConstBytes find_payload(std::uint64_t slice) const;
  // It was sent to all peers of a step.
  void note_sent(std::uint64_t slice) { tickets_.note_sent(slice); }
  // Where the payload of a step that receives may arrive; null: nowhere now.
  std::byte* find_place(std::size_t step, std::uint64_t slice) const;
  Status receive(std::size_t step, ConstBytes payload);
  void local(std::size_t step);
  const Arrivals& arrivals() const { return arrivals_; }

 private:
  using Job = kernels::device::SliceJob;

  std::uint64_t slice() const { return tickets_.slice(); }
  void add_part(const kernels::device::Source& part);
  void send_own(std::size_t step, std::span<const Bytes> frames);
  void send_sum(std::size_t step, std::span<const Bytes> frames);
  void add_payload(Job& job, std::size_t step, std::span<const Bytes> frames, std::uint64_t random_key);
  void finish(std::size_t step);
  void copy_own(std::size_t step);

  DeviceCall& call_;
  const plan::Lane& plan_;
  const DeviceLayout::Lane& places_;
  const DeviceSlices memory_;
  SliceTickets tickets_;
  Arrivals arrivals_;
  Job sum_{};                 // of the slice so far
  bool has_payload_ = false;  // the slice, made or not
};

}  // namespace qccl::engine
