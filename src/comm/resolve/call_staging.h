// A group's calls that name a stream: the kind of their memory, and their copies.
#pragma once

#include <string_view>

#include "comm/context.h"
#include "comm/device_staging.h"
#include "comm/resolve/resolve.h"

namespace qccl::comm {

// Throws Error, naming the group, if the call's buffers or its stream are wrong. Thread-safe.
class CallStaging {
 public:
  // Both outlive the object.
  CallStaging(const GroupIdentity& group, DeviceStaging& devices) : group_(group), devices_(devices) {}

  engine::MemoryKind memory_of(const CollectiveCall& call, const engine::ResolvedCall& resolved) const;
  // Makes the call run in host memory, between its copies.
  void stage(engine::CallArguments& arguments, const CollectiveCall& call) const;
  void stage(engine::CallArguments& arguments, const MessageCall& call) const;

 private:
  using Buffers = engine::StagedCall::Buffers;

  Buffers used_buffers(const CollectiveCall& call, const engine::ResolvedCall& resolved) const;
  template <class T>
  T take_or_throw(Result<T> result, std::string_view operation) const;

  const GroupIdentity& group_;
  DeviceStaging& devices_;
};

}  // namespace qccl::comm
