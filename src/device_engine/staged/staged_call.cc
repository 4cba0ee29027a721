#include "device_engine/staged/staged_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"

namespace qccl::engine {
namespace {

// How soon a sleeping host looks for a copy again; a copy of a MiB takes as long.
constexpr Nanoseconds kCopyPatience = std::chrono::microseconds(50);
// The caller's kernels may take long: each look doubles the time to the next one, up to this.
constexpr Nanoseconds kLongestPatience = std::chrono::milliseconds(1);

}  // namespace

// ---- StagedCall

StagedCall::StagedCall(StagingDevice& home, std::unique_ptr<device::Event> event)
    : home_(home), event_(std::move(event)), jobs_(home.launcher()) {}

Status StagedCall::begin(CUstream_st* caller, const DeviceBuffers& buffers, StagedMemory::Use use,
                         const LaneMemory& lanes) {
  if (use == StagedMemory::Use::lanes && !home_.has_kernels()) {
    memory_.take(home_.shadows(), home_.device(), buffers, StagedMemory::Use::shadow, {0, "the device has no kernels"});
  } else {
    memory_.take(home_.shadows(), home_.device(), buffers, use, lanes);
  }
  QCCL_TRY(device::check_not_capturing(home_.device(), caller));
  QCCL_TRY(event_->record(caller));
  state_ = State::awaits_caller;
  gates_opened_ = home_.gates_opened();
  patience_ = kCopyPatience;
  has_returned_ = false;
  return {};
}

Result<bool> StagedCall::advance() {
  if (state_ == State::runs || state_ == State::ended) return false;
  QCCL_ASSIGN(const bool happened, event_->has_happened());
  if (!happened) {
    if (state_ == State::awaits_caller) patience_ = std::min(2 * patience_, kLongestPatience);
    return false;
  }
  switch (state_) {
    case State::awaits_caller: QCCL_TRY(copy_in()); break;
    case State::copies_in: state_ = State::runs; break;
    default: end_return(); break;
  }
  return true;
}

Status StagedCall::copy_in() {
  if (!memory_.has_input_copy()) {
    state_ = State::runs;
    patience_ = kCopyPatience;
    return {};
  }
  patience_ = kCopyPatience;
  device::Stream& stream = home_.inward();
  QCCL_TRY(memory_.copy_in(stream));
  state_ = State::copies_in;
  return event_->record(stream.handle());
}

Status StagedCall::begin_return() {
  if (!memory_.has_output_copy()) {
    end_return();
    return {};
  }
  patience_ = kCopyPatience;
  device::Stream& stream = home_.outward();
  QCCL_TRY(memory_.copy_out(stream));
  state_ = State::copies_out;
  return event_->record(stream.handle());
}

void StagedCall::end_return() {
  has_returned_ = true;
  state_ = State::ended;
}

// A device that fails has ended the copy as well.
bool StagedCall::abandon(bool fills) {
  if (has_lanes() && !jobs_.abandon()) return false;
  if (state_ == State::copies_in || state_ == State::copies_out || state_ == State::fills) {
    const auto happened = event_->has_happened();
    if (happened.ok() && !happened.value()) return false;
    has_returned_ = happened.ok() && state_ == State::copies_out;
    fills &= happened.ok();
  }
  const bool has_begun = state_ == State::copies_in || state_ == State::runs || state_ == State::copies_out;
  if (fills && has_begun && !has_returned_ && fill_output()) return false;
  state_ = State::ended;
  return true;
}

// False if there is nothing to wait for.
bool StagedCall::fill_output() {
  device::Stream& stream = home_.outward();
  if (!memory_.fill_output(stream) || !event_->record(stream.handle()).ok()) return false;
  state_ = State::fills;
  return true;
}

void StagedCall::drain(bool fills) {
  while (!abandon(fills)) std::this_thread::yield();
}

bool StagedCall::saw_gate_open() {
  const std::uint64_t opened = home_.gates_opened();
  return std::exchange(gates_opened_, opened) != opened;
}

const char* StagedCall::awaited() const {
  switch (state_) {
    case State::awaits_caller: return "the work before it on its stream";
    case State::copies_in: return "the copy of its input from the device";
    case State::copies_out: return "the copy of its output to the device";
    default: return "nothing";
  }
}

std::unique_ptr<Compute> StagedCall::make_compute(const ComputeContext& context) const {
  return home_.make_compute(context);
}

void StagedCall::give_back() { home_.give_back(this); }

// ---- StagingDevice

Result<std::unique_ptr<StagingDevice>> StagingDevice::open(const device::Device& device, DeviceReach reach,
                                                           DeviceKernels kernels) {
  std::unique_ptr<StagingDevice> opened(new StagingDevice(device, std::move(reach), std::move(kernels)));
  QCCL_ASSIGN(opened->inward_, device::Stream::create(device));
  QCCL_ASSIGN(opened->outward_, device::Stream::create(device));
  if (opened->has_kernels()) {
    QCCL_ASSIGN(opened->computing_, device::Stream::create(device));
    opened->going_[2].emplace(device, *opened->computing_);
  }
  opened->going_[0].emplace(device, *opened->inward_);
  opened->going_[1].emplace(device, *opened->outward_);
  return opened;
}

device::Gates* StagingDevice::gates() {
  std::call_once(tried_gates_, [this] {
    const Status opened = open_gates();
    if (opened.ok()) return tried_.store(gates_.get(), std::memory_order_release);
    log(LogLevel::warning, fmt::format("streams of device {} can't wait for calls, which block the host instead: {}",
                                       device_.index(), opened.error().message));
  });
  return tried_.load(std::memory_order_acquire);
}

Status StagingDevice::open_gates() {
  QCCL_ASSIGN(gates_, device::Gates::open(device_));
  return gates_->try_out();
}

std::uint64_t StagingDevice::gates_opened() const {
  const device::Gates* const gates = tried_.load(std::memory_order_acquire);
  return gates == nullptr ? 0 : gates->opened();
}

Result<StagedCallPtr> StagingDevice::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      StagedCallPtr taken(free_.back().release());
      free_.pop_back();
      return taken;
    }
    free_.reserve(made_ + 1);
    ++made_;
  }
  QCCL_ASSIGN(auto event, device::Event::create(device_));
  return StagedCallPtr(new StagedCall(*this, std::move(event)));
}

void StagingDevice::give_back(StagedCall* call) {
  call->drain(false);
  shadows().give_back(call->memory_.release());
  const std::lock_guard lock(mutex_);
  free_.emplace_back(call);
}

}  // namespace qccl::engine
