// The memory of a group's calls: copies of those that name a stream, and of inputs to be kept.
#pragma once

#include <cstddef>
#include <string_view>

#include "choice/resolve.h"
#include "engine/call/call_arguments.h"
#include "job/group_identity.h"

namespace qccl::engine {
struct DeviceBuffers;
class Devices;
}  // namespace qccl::engine

namespace qccl::comm {

struct CallMemory;

// Throws Error, naming the group, if the call's buffers or its stream are wrong. Thread-safe.
class CallStaging {
 public:
  // `slice_bytes`: of calls on device memory. The others outlive the object.
  CallStaging(const GroupIdentity& group, CallMemory& memory, std::size_t slice_bytes);

  // Completes the call for the memory of its buffers. `may_choose`: nobody asked for its algorithm.
  void place(const CollectiveCall& call, engine::ResolvedCall& resolved, bool may_choose) const;
  // Gives a device its part in the call.
  void stage(engine::CallArguments& arguments, const CollectiveCall& call) const;
  void stage(engine::CallArguments& arguments, const MessageCall& call) const;
  // The call computes on the host: the state must be there, too, unless another call has it; then this one will be
  // refused when it is posted.
  void bring_home(internal::FeedbackState& feedback, std::string_view operation) const;
  // The call, which is staged if it names a stream, gives its input back if it fails. Throws std::bad_alloc.
  void keep_input(engine::CallArguments& arguments, const CollectiveCall& call) const;

 private:
  engine::DeviceBuffers used_buffers(const CollectiveCall& call, const engine::ResolvedCall& resolved) const;
  template <class T>
  T take_or_throw(Result<T> result, std::string_view operation) const;

  const GroupIdentity& group_;
  engine::Devices& devices_;
  engine::KeptPool& kept_inputs_;
  const std::size_t slice_bytes_;
};

}  // namespace qccl::comm
