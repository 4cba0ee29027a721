// Memory and copies. Copies to the CPU wait for the current stream; all others only join it.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "fake_device.h"

namespace qccl::fake_device {
namespace {

namespace fake = qccl::device::fake;

struct FakeAllocator final : at::Allocator {
  at::DataPtr allocate(std::size_t bytes) override {
    const c10::DeviceIndex device = current_device();
    void* const memory = bytes == 0 ? nullptr : fake::allocate(fake::Kind::device, bytes, device);
    return {memory, memory, &release, c10::Device(kType, device)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, std::size_t) const override { TORCH_CHECK(false, "not in these tests"); }
  static void release(void* memory) {
    if (memory != nullptr) fake::free(memory);
  }
};

CUstream_st* stream_for(const c10::Device& device) { return handle_of(current_stream(device.index())); }

struct FakePinnedAllocator final : at::Allocator {
  at::DataPtr allocate(std::size_t bytes) override {
    void* const memory = bytes == 0 ? nullptr : fake::allocate(fake::Kind::pinned, bytes);
    return {memory, memory, &FakeAllocator::release, c10::Device(at::kCPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &FakeAllocator::release; }
  void copy_data(void* target, const void* source, std::size_t bytes) const override {
    std::copy_n(static_cast<const std::byte*>(source), bytes, static_cast<std::byte*>(target));
  }
};

// Autograd, storages and torch.accelerator ask for these.
struct FakeHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(fake::device_count()); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  bool isPinnedPtr(const void* memory) const override { return fake::is_pinned(memory); }
  at::Allocator* getPinnedMemoryAllocator() const override {
    static FakePinnedAllocator only;
    return &only;
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};
[[maybe_unused]] const bool kHooksRegistered = [] {
  static FakeHooks only;
  at::RegisterPrivateUse1HooksInterface(&only);
  return true;
}();

}  // namespace

at::Allocator& allocator() {
  static FakeAllocator only;
  return only;
}
REGISTER_ALLOCATOR(kType, &allocator());

at::Tensor on_cpu(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  at::Tensor storage = at::empty({bytes}, at::kByte);
  if (bytes > 0) {
    fake::read(stream_for(tensor.device()), tensor.storage().data(), storage.data_ptr(), storage.nbytes());
  }
  at::Tensor copy = at::empty({0}, tensor.options().device(at::kCPU))
                        .set_(storage.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
  copy.unsafeGetTensorImpl()->_set_conj(tensor.is_conj());
  copy._set_neg(tensor.is_neg());
  return copy;
}

void write(const at::Tensor& values, const at::Tensor& target) {
  if (target.numel() == 0) return;
  CUstream_st* const stream = stream_for(target.device());
  if (target.is_contiguous() && !target.is_conj() && !target.is_neg()) {
    const at::Tensor plain =
        values.to(target.scalar_type()).expand(target.sizes()).resolve_conj().resolve_neg().contiguous();
    return fake::write(stream, target.mutable_data_ptr(), plain.const_data_ptr(), plain.nbytes());
  }
  const at::Tensor whole = on_cpu(target);
  whole.copy_(values);
  fake::write(stream, const_cast<void*>(target.storage().data()), whole.storage().data(), whole.storage().nbytes());
}

void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  at::DataPtr memory = allocator().allocate(bytes);
  if (const std::size_t kept = std::min(bytes, storage.nbytes()); kept > 0) {
    at::Tensor copy = at::empty({static_cast<std::int64_t>(kept)}, at::kByte);
    fake::read(stream_for(storage.device()), storage.data(), copy.data_ptr(), kept);
    fake::write(stream_for(storage.device()), memory.get(), copy.data_ptr(), kept);
  }
  storage.set_data_ptr_noswap(std::move(memory));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

}  // namespace qccl::fake_device
