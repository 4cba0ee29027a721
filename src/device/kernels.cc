#include "device/kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "kernels/device/job_list.h"

namespace qccl::device {
namespace {

using kernels::device::kEntries;
using kernels::device::kEntryNames;

constexpr int kCubinVersion = 13000;  // of the oldest driver that reads the cubins

Failure failure_at(const Device& device, const char* function, Code code) {
  Failure failure = failure_of(device.driver(), function, code);
  failure.info().message = fmt::format("device {}: {}", device.index(), failure.info().message);
  return failure;
}

// The driver can't use the cubins, which says nothing of the device: they are in a form that it does not know, of no
// architecture that the device runs, or not to be used at all (CUDA_FORCE_PTX_JIT). The PTX may still do.
bool is_of_cubins(Code code) {
  switch (code) {
    case Code::invalid_image:
    case Code::no_binary_for_gpu:
    case Code::unsupported_ptx_version:
    case Code::jit_compilation_disabled: return true;
    default: return false;
  }
}

Code load_module(const Device& device, const KernelImages& images, CUmod_st*& module) {
  int version = 0;
  static_cast<void>(device.driver().driver_get_version(&version));
  if (version >= kCubinVersion) {
    const Code code = device.call(&Driver::module_load_data, &module, images.cubins);
    if (!is_of_cubins(code)) return code;
  }
  return device.call(&Driver::module_load_data, &module, static_cast<const void*>(images.ptx));
}

}  // namespace

bool has_machine_code(const KernelImages& images, const Traits& traits, int driver_number) {
  if (driver_number < kCubinVersion) return false;
  const char* at = images.architectures.data();
  const char* const end = at + images.architectures.size();
  while (at != end) {
    int architecture = 0;  // 90: 9.0
    const auto [next, error] = std::from_chars(at, end, architecture);
    const bool fits = architecture / 10 == traits.compute_major && architecture % 10 <= traits.compute_minor;
    if (error == std::errc() && fits) return true;
    at = error == std::errc() ? next : at + 1;
  }
  return false;
}

Result<std::unique_ptr<Kernels>> Kernels::load(const Device& device, const KernelImages& images) {
  if (images.empty()) {
    return Failure(ErrorKind::unsupported,
                   "this library has no kernels for devices: build it where CUDA's nvcc is found (docs/gpu.md)");
  }
  CUmod_st* module = nullptr;
  const Code code = load_module(device, images, module);
  if (code != Code::success) return failure_at(device, "cuModuleLoadData", code);
  std::unique_ptr<Kernels> kernels(new Kernels(device, module));
  QCCL_TRY(kernels->find_functions());
  return kernels;
}

Kernels::~Kernels() { static_cast<void>(device_.call(&Driver::module_unload, module_)); }

Status Kernels::find_functions() {
  for (std::size_t i = 0; i < kEntries; ++i) {
    const Code code = device_.call(&Driver::module_get_function, &functions_[i], module_, kEntryNames[i]);
    if (code != Code::success) return failure_at(device_, "cuModuleGetFunction", code);
  }
  return {};
}

Status Kernels::launch(const Stream& stream, kernels::device::Entry entry,
                       std::span<const kernels::device::SliceJob> jobs, std::uint32_t blocks) const {
  while (!jobs.empty()) {
    const auto listed = jobs.first(std::min<std::size_t>(jobs.size(), kernels::device::kMostListed));
    kernels::device::JobList list = kernels::device::list_of(listed.data(), static_cast<std::uint32_t>(listed.size()));
    void* parameters[] = {&list};
    Code code = Code::success;
    kernels::device::each_program(entry, listed, [&](kernels::device::Entry program) {
      if (code != Code::success) return;
      code = device_.call(&Driver::launch_kernel, functions_[static_cast<std::size_t>(program)], blocks, 1u, 1u,
                          kernels::device::kThreads, 1u, 1u, 0u, stream.handle(), +parameters, nullptr);
    });
    if (code != Code::success) return failure_at(device_, "cuLaunchKernel", code);
    jobs = jobs.subspan(listed.size());
  }
  return {};
}

}  // namespace qccl::device
