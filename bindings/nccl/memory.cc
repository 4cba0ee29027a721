// Memory from ncclMemAlloc(), on the current device or, without a driver, the host's; registrations make no difference.
#include <cstdlib>

#include "communicator.h"
#include "results.h"

namespace qccl::nccl {
namespace {

constexpr std::size_t kAlignment = 4096;

std::shared_ptr<void> allocate(std::size_t bytes) {
  try {
    return allocate_on_device(bytes, current_device().value_or(0));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
  }
  const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* const memory = whole < bytes ? nullptr : std::aligned_alloc(kAlignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [](void* each) { std::free(each); }};
}

}  // namespace
}  // namespace qccl::nccl

using namespace qccl::nccl;

ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  return guarded([&] {
    if (memory == nullptr || bytes == 0) refuse_argument("ncclMemAlloc() of nothing, or to a null pointer");
    auto allocated = allocate(bytes);
    *memory = allocated.get();
    const std::lock_guard lock(process().mutex);
    process().allocations.emplace(*memory, std::move(allocated));
    return ncclSuccess;
  });
}

ncclResult_t ncclMemFree(void* memory) {
  return guarded([&] {
    if (memory == nullptr) return ncclSuccess;
    std::unique_lock lock(process().mutex);
    const auto found = process().allocations.extract(memory);
    lock.unlock();
    if (found.empty()) refuse_argument("ncclMemFree() of memory that ncclMemAlloc() has not given, or no longer");
    return ncclSuccess;
  });
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  return guarded([&] {
    find(comm);
    if (memory == nullptr || bytes == 0 || handle == nullptr) refuse_argument("ncclCommRegister() of nothing");
    *handle = memory;
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void*) {
  return guarded([&] {
    find(comm);
    return ncclSuccess;
  });
}
