// The jobs of one call on their way through a device: collected, launched in batches, and ended when the host has seen
// the event behind their batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/kernels.h"

namespace qccl::engine {

// Launches kernels; what it stands on outlives it.
struct DeviceLauncher {
  const device::Kernels* kernels = nullptr;  // null: there are none for the device
  const device::Device* device = nullptr;
  device::Stream* stream = nullptr;
};

// One thread at a time. Destroyed only when is_idle().
class DeviceJobs {
 public:
  // Of a job; those that were added before have smaller ones. 0: of no job.
  using Ticket = std::uint64_t;

  explicit DeviceJobs(const DeviceLauncher& launcher) : launcher_(launcher) {}

  // `follows`: the job reads or writes what one before it writes. The memory that a job names stays as it is until the
  // job has ended.
  Ticket add(const kernels::device::SliceJob& job, bool follows);
  bool has_ended(Ticket ticket) const { return ticket <= ended_; }
  bool is_idle() const { return ended_ == added_; }

  // Launches what was added, unless enough is under way: the next batch then grows meanwhile.
  Status submit();
  // Looks which batches have ended; true if any has.
  Result<bool> look();
  // Forgets what was not launched. True if nothing is under way any more.
  bool abandon();

 private:
  // Two keep the device busy; the third is there when the first ends between two looks.
  static constexpr std::size_t kMostBatches = 3;
  static constexpr std::size_t kMostJobs = 64;  // of a batch
  struct Batch {
    std::unique_ptr<device::Event> event{};
    Ticket last = 0;
  };

  Status launch(Batch& batch, std::size_t count);

  const DeviceLauncher launcher_;
  std::vector<kernels::device::SliceJob> waiting_;
  std::vector<bool> follows_;  // of those waiting
  std::array<Batch, kMostBatches> batches_;
  std::size_t first_ = 0;  // of those under way
  std::size_t under_way_ = 0;
  Ticket added_ = 0;
  Ticket launched_ = 0;
  Ticket ended_ = 0;
};

}  // namespace qccl::engine
