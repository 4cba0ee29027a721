#include "extras/onebit/blocking_stage.h"

#include <fmt/format.h>

#include <thread>

namespace qccl::comm {

using engine::MemoryKind;

template <class Condition>
Status BlockingStage::wait_until(const Condition& holds, TimePoint deadline) {
  for (const engine::DevicePartPtr& part : parts_) {
    while (!holds(*part)) {
      QCCL_ASSIGN(const bool moved, part->advance());
      if (!moved && clock_.now() >= deadline) {
        return Failure(ErrorKind::deadline_exceeded,
                       fmt::format("the deadline passed while this rank waited for {}", part->awaited()));
      }
      if (!moved) std::this_thread::yield();
    }
  }
  return {};
}

Status BlockingStage::bring(const DeviceStream& stream, std::span<const Buffer> buffers, TimePoint deadline) {
  std::vector<engine::UsedBuffer> used;
  for (const Buffer& buffer : buffers) used.push_back(buffer.memory);
  QCCL_ASSIGN(const MemoryKind kind, devices_.kind_of(stream, used));
  for (const auto& [memory, use] : buffers) {
    auto* const begin = const_cast<std::byte*>(memory.begin);
    engine::DeviceBuffers copied{.input = begin, .output = begin};
    if (use != Use::write) copied.input_bytes = memory.bytes;
    if (use != Use::read) copied.output_bytes = memory.bytes;
    QCCL_ASSIGN(engine::DevicePartPtr part, devices_.begin(stream, copied, kind, nullptr));
    hosts_.push_back(use == Use::read ? const_cast<std::byte*>(part->input()) : part->output());
    parts_.push_back(std::move(part));
  }
  return wait_until([](const engine::DevicePart& part) { return part.runs(); }, deadline);
}

Status BlockingStage::give_back(TimePoint deadline) {
  for (const engine::DevicePartPtr& part : parts_) QCCL_TRY(part->begin_return());
  return wait_until([](const engine::DevicePart& part) { return part.has_ended(); }, deadline);
}

}  // namespace qccl::comm
