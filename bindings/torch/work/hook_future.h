// The future that a communication hook gives to DDP, made without a Python callback: inside one, torch turns every
// error of the operation into a RuntimeError.
#pragma once

#include <memory>
#include <optional>

#include "work/ordered_future.h"
#include "work/work.h"

namespace qccl::torch_binding {

// Returns a future whose value is the only output of `work`, an all_reduce in flight, as the Python object that DDP
// expects. If `share_work` and `share` are given, waits for `share_work` and divides the output by `share`. Call it
// without the interpreter's lock. The future fails as the operations do. Its callbacks run in the order in which then()
// was called.
std::shared_ptr<OrderedFuture> hook_future(const c10::intrusive_ptr<CollectiveWork>& work,
                                           const c10::intrusive_ptr<c10d::Work>& share_work,
                                           const std::optional<at::Tensor>& share);

}  // namespace qccl::torch_binding
