// The memory of a group's calls: copies of those that name a stream, and of inputs to be kept.
#pragma once

#include <cstddef>
#include <string_view>

#include "choice/resolve.h"
#include "engine/call/call_arguments.h"
#include "job/group_identity.h"

namespace qccl::engine {
struct LaneMemory;
struct StagedBuffers;
}  // namespace qccl::engine

namespace qccl::comm {

struct CallMemory;
class DeviceStaging;

// Throws Error, naming the group, if the call's buffers or its stream are wrong. Thread-safe.
class CallStaging {
 public:
  // `slice_bytes`: of calls on device memory. The others outlive the object.
  CallStaging(const GroupIdentity& group, CallMemory& memory, std::size_t slice_bytes);

  // Completes the call for the memory of its buffers. `may_choose`: nobody asked for its algorithm.
  void place(const CollectiveCall& call, engine::ResolvedCall& resolved, bool may_choose) const;
  // Makes the call run on lanes of the device, or in host memory between its copies.
  void stage(engine::CallArguments& arguments, const CollectiveCall& call) const;
  void stage(engine::CallArguments& arguments, const MessageCall& call) const;
  // The call computes on the host: the state must be there, too, unless another call has it; then this one will be
  // refused when it is posted.
  void bring_home(internal::FeedbackState& feedback, const CollectiveCall& call) const;
  // The call, which is staged if it names a stream, gives its input back if it fails. Throws std::bad_alloc.
  void keep_input(engine::CallArguments& arguments, const CollectiveCall& call) const;

 private:
  using Buffers = engine::StagedBuffers;

  // Of a call on device memory.
  engine::LaneMemory lane_memory(const engine::CallArguments& arguments, const CollectiveCall& call,
                                 const Buffers& buffers) const;
  Buffers used_buffers(const CollectiveCall& call, const engine::ResolvedCall& resolved) const;
  template <class T>
  T take_or_throw(Result<T> result, std::string_view operation) const;

  const GroupIdentity& group_;
  DeviceStaging& devices_;
  engine::KeptPool& kept_inputs_;
  const std::size_t slice_bytes_;
};

}  // namespace qccl::comm
