// One call of torch. The Backend fills it once; its CollectiveWork posts it and keeps it until its operations have
// ended.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/jit_type.h>

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "backend/call_memory.h"
#include "qccl/communicator.h"
#include "tensors.h"

namespace qccl::torch_binding {

class CollectiveWork;

// The function of the program that makes the call, if the log records callers ("debug"); else "" (module/log.cc).
std::string log_caller();

struct TorchCall {
  // Posts one operation of the library.
  using Post = std::function<qccl::Work(Communicator&)>;

  // One of a batch of messages, as the trace shows it.
  struct Message {
    const char* title;
    int peer;
    at::Tensor tensor;
  };

  c10d::OpType type;
  const char* title;                                             // of its profiler event; not copied
  std::vector<at::Tensor> inputs = {};                           // the event and the trace show their shapes
  std::vector<std::vector<at::Tensor>> outputs = {};             // the future's value: a list, or a list of lists
  CallOptions options = {};                                      // common to its operations
  int peer = -1;                                                 // of a message
  std::vector<Message> messages = {};                            // of a batch, if it has nothing else
  std::vector<Post> posts = {};                                  // called in this order, before any data moves
  Post later_post = nullptr;                                     // called once those succeeded; not in coalesced calls
  CallMemory memory = {};                                        // of the posts; finished once all have succeeded
  std::vector<std::function<void()>> endings = {};               // called after memory.finish()
  std::vector<c10::intrusive_ptr<CollectiveWork>> earlier = {};  // a barrier also waits for these
  std::vector<std::uint64_t> part_keys = {};                     // of its parts' Works, if it was coalesced

  bool is_asynchronous = true;
  bool is_gated = false;  // streams are to wait for it, if they can; else the host waits

  bool is_message() const { return c10d::isP2POp(type); }
  // The host has nothing to do or to tell once its operations have ended.
  bool ends_on_streams() const {
    return is_gated && later_post == nullptr && endings.empty() && !memory.has_copies() &&
           type != c10d::OpType::BARRIER && type != c10d::OpType::RECVANYSOURCE;
  }
  // Of the device that its tensors are on.
  std::optional<DeviceStream> stream() const { return stream_of_device(device()); }
  // Empty if it has no tensors. ValueError if they are on several.
  std::optional<c10::Device> device() const {
    std::optional<c10::Device> device = device_of(inputs, title);
    for (const auto& list : outputs) device = device_of(list, title, device);
    return device;
  }
  // What the future has: a list, or a list of lists.
  c10::TypePtr value_type() const {
    c10::TypePtr type = c10::ListType::create(c10::TensorType::get());
    return outputs.size() > 1 ? c10::ListType::create(type) : type;
  }
  c10::IValue value() const {
    if (outputs.size() > 1) return c10::IValue(outputs);
    return c10::IValue(outputs.empty() ? std::vector<at::Tensor>{} : outputs.front());
  }
  std::chrono::milliseconds timeout() const { return options.timeout.value_or(c10d::kUnsetTimeout); }

  // Adds a collective, and keeps its counts.
  void post(CollectiveCall call) {
    if (!call.counts)
      return posts.push_back([call = std::move(call)](Communicator& group) { return group.post(call); });
    std::vector<std::size_t> counts(call.counts->begin(), call.counts->end());
    posts.push_back([call = std::move(call), counts = std::move(counts)](Communicator& group) mutable {
      call.counts = counts;
      return group.post(call);
    });
  }

  // Frees all that only the operations needed.
  void release() {
    inputs.clear();
    messages.clear();
    posts.clear();
    memory = {};
    endings.clear();
    earlier.clear();
  }
};

// A collective of the elements of `counted` on this memory. A buffer that this rank does not have is undefined.
inline CollectiveCall call_on(Collective collective, const CallMemory::Pair& memory, const at::Tensor& counted,
                              const Elements& elements, CallOptions options) {
  void* const target = memory.target.defined() ? memory.target.mutable_data_ptr() : nullptr;
  const void* const source = memory.source.defined() ? memory.source.const_data_ptr() : nullptr;
  return {collective, source, target, elements.count_in(counted), elements.type, std::move(options)};
}

}  // namespace qccl::torch_binding
