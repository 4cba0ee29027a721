#include "device_engine/staged/staged_memory.h"

#include <algorithm>
#include <utility>

namespace qccl::engine {
namespace {

// Shadows of separate buffers begin on cache lines of their own.
constexpr std::size_t kAlignment = 256;

bool overlap(const DeviceBuffers& buffers) {
  return buffers.input_bytes > 0 && buffers.output_bytes > 0 && buffers.input < buffers.output + buffers.output_bytes &&
         buffers.output < buffers.input + buffers.input_bytes;
}

}  // namespace

void StagedMemory::take(ShadowPool& pool, const device::Device& device, const DeviceBuffers& buffers, Use use,
                        const LaneMemory& lanes) {
  use_ = use;
  why_shadow_ = lanes.why_not;
  caller_ = buffers;
  used_ = buffers;
  if (use == Use::lanes) {
    shadow_ = pool.take(device, lanes.bytes);
    if (shadow_.pinned != nullptr) return;
    pool.give_back(release());
    use_ = Use::shadow;
    why_shadow_ = "there is no pinned memory for lanes (QCCL_PINNED_LIMIT)";
  }
  if (use_ == Use::shadow) make_shadow(pool, device);
}

Shadow StagedMemory::release() { return std::exchange(shadow_, {}); }

// Buffers that overlap, as those of calls in place do, overlap in the same way in the shadow.
void StagedMemory::make_shadow(ShadowPool& pool, const device::Device& device) {
  input_at_ = 0;
  std::size_t output_at = (caller_.input_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (overlap(caller_)) {
    const std::byte* const first = std::min<const std::byte*>(caller_.input, caller_.output);
    input_at_ = static_cast<std::size_t>(caller_.input - first);
    output_at = static_cast<std::size_t>(caller_.output - first);
  }
  const std::size_t bytes = std::max(input_at_ + caller_.input_bytes, output_at + caller_.output_bytes);
  if (bytes == 0) return;
  shadow_ = pool.take(device, bytes);
  used_.input = shadow_.data() + input_at_;
  used_.output = shadow_.data() + output_at;
}

std::string StagedMemory::describe_place() const {
  if (use_ == Use::where_it_lies) return "";
  if (use_ == Use::lanes) return "lanes";
  return *why_shadow_ == '\0' ? "staged" : std::string("staged: ") + why_shadow_;
}

Status StagedMemory::copy_in(device::Stream& stream) const {
  return stream.copy_to_host(shadow_.data() + input_at_, caller_.input, caller_.input_bytes);
}

Status StagedMemory::copy_out(device::Stream& stream) const {
  return stream.copy_to_device(caller_.output, used_.output, caller_.output_bytes);
}

bool StagedMemory::fill_output(device::Stream& stream) const {
  constexpr std::byte kNone{0xFF};
  if (caller_.output_bytes == 0) return false;
  if (use_ != Use::where_it_lies) return stream.fill(caller_.output, kNone, caller_.output_bytes).ok();
  std::fill_n(caller_.output, caller_.output_bytes, kNone);
  return false;
}

}  // namespace qccl::engine
