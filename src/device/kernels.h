// The library's kernels on a device (kernels/device/slice_job.h): loaded once, then launched with lists of jobs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "device/device.h"
#include "device/kernel_images.h"
#include "kernels/device/slice_job.h"

namespace qccl::device {

// Whether the images have machine code that the device runs and a driver of this version loads; else it translates PTX.
bool has_machine_code(const KernelImages& images, const Traits& traits, int driver_number);

// Thread-safe.
class Kernels {
 public:
  // Cubins want driver 580, which is CUDA 13; an older driver, and one whose device has no cubin here, translate the
  // PTX. Unsupported without images; a failure of the driver if it can load neither.
  static Result<std::unique_ptr<Kernels>> load(const Device& device, const KernelImages& images);
  ~Kernels();
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  // Runs the jobs behind the stream's work, on so many blocks. All have this entry(), and none reads what another of
  // them writes. The memory that they name stays as it is until an event behind them has happened; they themselves are
  // copied. A launch takes up to kMostListed; if one fails, those before it have been launched.
  Status launch(const Stream& stream, kernels::device::Entry entry, std::span<const kernels::device::SliceJob> jobs,
                std::uint32_t blocks) const;

 private:
  explicit Kernels(const Device& device, CUmod_st* module) : device_(device), module_(module) {}
  Status find_functions();

  const Device& device_;
  CUmod_st* const module_;
  std::array<CUfunc_st*, kernels::device::kEntries> functions_{};
};

}  // namespace qccl::device
