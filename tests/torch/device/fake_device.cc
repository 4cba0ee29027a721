// Makes torch's "privateuseone" a device over the fake CUDA driver (src/device/fake), so that tests without a GPU can
// give the backend tensors of a device: memory that the host can't touch, streams that run late, events.
//
// Operators run on the CPU: torch's fallback copies their tensors there and back. Copies to the CPU wait for the
// current stream; all others only join it.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "device/fake/fake_cuda.h"

namespace {

namespace fake = qccl::device::fake;

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr c10::StreamId kPooled = 4;  // streams of the pool; 0 is the default stream

CUstream_st* handle_of(c10::StreamId id) {
  static const auto* const kStreams = [] {
    auto* const made = new std::array<CUstream_st*, kPooled + 1>{};
    for (std::size_t i = 1; i < made->size(); ++i) (*made)[i] = fake::make_stream();
    return made;
  }();
  return (*kStreams)[static_cast<std::size_t>(id)];
}

c10::StreamId& current_id() {
  thread_local c10::StreamId id = 0;
  return id;
}
CUstream_st* current() { return handle_of(current_id()); }

c10::Stream stream_of(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, 0), id); }

// ---- memory

struct FakeAllocator final : at::Allocator {
  at::DataPtr allocate(std::size_t bytes) override {
    void* const memory = bytes == 0 ? nullptr : fake::allocate(fake::Kind::device, bytes);
    return {memory, memory, &release, c10::Device(kType, 0)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, std::size_t) const override { TORCH_CHECK(false, "not in these tests"); }
  static void release(void* memory) {
    if (memory != nullptr) fake::free(memory);
  }
};

FakeAllocator& allocator() {
  static FakeAllocator only;
  return only;
}
REGISTER_ALLOCATOR(kType, &allocator());

// ---- streams and events

using Happened = std::shared_ptr<std::atomic<bool>>;

struct FakeGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {kType, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return stream_of(current_id()); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    static std::atomic<c10::StreamId> taken{0};
    return stream_of(taken++ % kPooled + 1);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(std::exchange(current_id(), stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return handle_of(stream.id()); }
  void synchronizeStream(const c10::Stream& stream) const override { fake::synchronize(handle_of(stream.id())); }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Happened;
    auto& happened = *static_cast<Happened*>(*event);
    happened = std::make_shared<std::atomic<bool>>(false);
    fake::enqueue(handle_of(stream.id()), [happened] { happened->store(true); });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    fake::enqueue(handle_of(stream.id()), [happened = *static_cast<Happened*>(event)] {
      while (!*happened) std::this_thread::yield();
    });
  }
  bool queryEvent(void* event) const override { return event == nullptr || **static_cast<Happened*>(event); }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::yield();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Happened*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeGuard);

// Autograd asks for these.
struct FakeHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};
[[maybe_unused]] const bool kHooksRegistered = [] {
  static FakeHooks only;
  at::RegisterPrivateUse1HooksInterface(&only);
  c10::register_privateuse1_backend("fakecuda");
  return true;
}();

// ---- operators

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(type), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      size, stride, &allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(type));
}

// A CPU tensor over a copy of the device tensor's whole storage, as the current stream leaves it.
at::Tensor on_cpu(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  at::Tensor storage = at::empty({bytes}, at::kByte);
  if (bytes > 0) fake::read(current(), tensor.storage().data(), storage.data_ptr(), storage.nbytes());
  return at::empty({0}, tensor.options().device(at::kCPU))
      .set_(storage.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

// The current stream writes the values into the device tensor.
void write(const at::Tensor& values, const at::Tensor& target) {
  if (target.numel() == 0) return;
  if (target.is_contiguous()) {
    const at::Tensor plain = values.to(target.scalar_type()).expand(target.sizes()).contiguous();
    return fake::write(current(), target.mutable_data_ptr(), plain.const_data_ptr(), plain.nbytes());
  }
  const at::Tensor whole = on_cpu(target);
  whole.copy_(values);
  fake::write(current(), const_cast<void*>(target.storage().data()), whole.storage().data(), whole.storage().nbytes());
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool) {
  const at::Tensor values = source.is_cpu() ? source.resolve_conj() : on_cpu(source);
  target.is_cpu() ? static_cast<void>(target.copy_(values)) : write(values, target);
  return target;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target) {
  TORCH_CHECK(source.sizes() == target.sizes(), "these tests resize nothing");
  return copy_from(source, target, false);
}

void run_on_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  at::native::cpu_fallback(operation, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("_copy_from", &copy_from);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("take_misuses", &fake::take_misuses);
  module.def("set_delays", [](std::uint64_t seed, int microseconds) {
    fake::set_delays(seed, std::chrono::microseconds(microseconds));
  });
  // Makes another stream of the pool this thread's, and returns the one before it.
  module.def("use_stream", [](c10::StreamId id) { return std::exchange(current_id(), id); });
  module.def("hold", [] { fake::hold(current()); });
  module.def("release", [](c10::StreamId id) { fake::release(handle_of(id)); });
}
