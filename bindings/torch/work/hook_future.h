// What a communication hook gives to DDP, made without a Python callback: in one, torch turns every error of the
// operation into a RuntimeError.
#pragma once

#include <memory>
#include <optional>

#include "work/ordered_future.h"
#include "work/work.h"

namespace qccl::torch_binding {

// A future of the only output of `work`, an all_reduce in flight, as the Python object that DDP takes out of it; of the
// output divided by `share`, once `share_work` has ended, where there are these. Without the interpreter's lock.
// It fails as the operations do. Its callbacks run in the order in which then() was called.
std::shared_ptr<OrderedFuture> hook_future(const c10::intrusive_ptr<CollectiveWork>& work,
                                           const c10::intrusive_ptr<c10d::Work>& share_work,
                                           const std::optional<at::Tensor>& share);

}  // namespace qccl::torch_binding
