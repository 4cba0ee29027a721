#include "extras/onebit/blocking_stage.h"

#include <fmt/format.h>

#include <thread>

namespace qccl::comm {

using engine::MemoryKind;
using engine::StagedCall;

template <class Condition>
Status BlockingStage::wait_until(const Condition& holds, TimePoint deadline) {
  for (const engine::StagedCallPtr& call : calls_) {
    while (!holds(*call)) {
      QCCL_ASSIGN(const bool moved, call->advance());
      if (!moved && clock_.now() >= deadline) {
        return Failure(ErrorKind::deadline_exceeded,
                       fmt::format("the deadline passed while this rank waited for {}", call->awaited()));
      }
      if (!moved) std::this_thread::yield();
    }
  }
  return {};
}

Status BlockingStage::bring(const DeviceStream& stream, std::span<const Buffer> buffers, TimePoint deadline) {
  std::vector<UsedBuffer> used;
  for (const Buffer& buffer : buffers) used.push_back(buffer.memory);
  QCCL_ASSIGN(const MemoryKind kind, devices_.kind_of(stream, used));
  for (const auto& [memory, use] : buffers) {
    auto* const begin = const_cast<std::byte*>(memory.begin);
    engine::StagedBuffers copied{.input = begin, .output = begin};
    if (use != Use::write) copied.input_bytes = memory.bytes;
    if (use != Use::read) copied.output_bytes = memory.bytes;
    QCCL_ASSIGN(engine::StagedCallPtr call, devices_.begin(stream, copied, kind));
    hosts_.push_back(use == Use::read ? const_cast<std::byte*>(call->memory().input()) : call->memory().output());
    calls_.push_back(std::move(call));
  }
  return wait_until([](const StagedCall& call) { return call.runs(); }, deadline);
}

Status BlockingStage::give_back(TimePoint deadline) {
  for (const engine::StagedCallPtr& call : calls_) QCCL_TRY(call->begin_return());
  return wait_until([](const StagedCall& call) { return call.has_ended(); }, deadline);
}

}  // namespace qccl::comm
