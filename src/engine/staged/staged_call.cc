#include "engine/staged/staged_call.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace qccl::engine {
namespace {

// How soon a sleeping host looks for a copy again; a copy of a MiB takes as long.
constexpr Nanoseconds kCopyPatience = std::chrono::microseconds(50);
// The caller's kernels may take long: each look doubles the time to the next one, up to this.
constexpr Nanoseconds kLongestPatience = std::chrono::milliseconds(1);

// Shadows of separate buffers begin on cache lines of their own.
constexpr std::size_t kAlignment = 256;

}  // namespace

// ---- StagedCall

Status StagedCall::begin(CUstream_st* caller, const Buffers& buffers, bool is_device) {
  device_ = is_device ? buffers : Buffers{};
  host_ = buffers;
  if (is_device) make_shadow();
  QCCL_TRY(device::check_not_capturing(home_.device(), caller));
  QCCL_TRY(event_->record(caller));
  state_ = State::awaits_caller;
  patience_ = kCopyPatience;
  has_returned_ = false;
  return {};
}

// Buffers that overlap, as those of calls in place do, overlap in the same way in the shadow.
void StagedCall::make_shadow() {
  const bool overlap = device_.input_bytes > 0 && device_.output_bytes > 0 &&
                       device_.input < device_.output + device_.output_bytes &&
                       device_.output < device_.input + device_.input_bytes;
  input_at_ = 0;
  std::size_t output_at = (device_.input_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (overlap) {
    const std::byte* const first = std::min<const std::byte*>(device_.input, device_.output);
    input_at_ = static_cast<std::size_t>(device_.input - first);
    output_at = static_cast<std::size_t>(device_.output - first);
  }
  const std::size_t bytes = std::max(input_at_ + device_.input_bytes, output_at + device_.output_bytes);
  if (bytes == 0) return;
  shadow_ = home_.shadows().take(home_.device(), bytes);
  host_.input = shadow_.data() + input_at_;
  host_.output = shadow_.data() + output_at;
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
  if (device_.input_bytes == 0) {
    state_ = State::runs;
    return {};
  }
  patience_ = kCopyPatience;
  device::Stream& stream = home_.inward();
  QCCL_TRY(stream.copy_to_host(shadow_.data() + input_at_, device_.input, device_.input_bytes));
  state_ = State::copies_in;
  return event_->record(stream.handle());
}

Status StagedCall::begin_return() {
  if (device_.output_bytes == 0) {
    end_return();
    return {};
  }
  patience_ = kCopyPatience;
  device::Stream& stream = home_.outward();
  QCCL_TRY(stream.copy_to_device(device_.output, host_.output, device_.output_bytes));
  state_ = State::copies_out;
  return event_->record(stream.handle());
}

void StagedCall::end_return() {
  has_returned_ = true;
  state_ = State::ended;
}

// A device that fails has ended the copy as well.
bool StagedCall::abandon() {
  if (state_ == State::copies_in || state_ == State::copies_out) {
    const auto happened = event_->has_happened();
    if (happened.ok() && !happened.value()) return false;
    has_returned_ = happened.ok() && state_ == State::copies_out;
  }
  state_ = State::ended;
  return true;
}

void StagedCall::drain() {
  while (!abandon()) std::this_thread::yield();
}

const char* StagedCall::awaited() const {
  switch (state_) {
    case State::awaits_caller: return "the work before it on its stream";
    case State::copies_in: return "the copy of its input from the device";
    case State::copies_out: return "the copy of its output to the device";
    default: return "nothing";
  }
}

void StagedCallReturn::operator()(StagedCall* call) const {
  if (call != nullptr) call->home().give_back(call);
}

// ---- StagingDevice

Result<std::unique_ptr<StagingDevice>> StagingDevice::open(const device::Device& device, ShadowPool& shadows) {
  std::unique_ptr<StagingDevice> opened(new StagingDevice(device, shadows));
  QCCL_ASSIGN(opened->inward_, device::Stream::create(device));
  QCCL_ASSIGN(opened->outward_, device::Stream::create(device));
  return opened;
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
  call->drain();
  shadows_.give_back(std::exchange(call->shadow_, {}));
  const std::lock_guard lock(mutex_);
  free_.emplace_back(call);
}

}  // namespace qccl::engine
