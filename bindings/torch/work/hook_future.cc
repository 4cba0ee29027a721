#include "work/hook_future.h"

#include <ATen/core/jit_type.h>

namespace qccl::torch_binding {

std::shared_ptr<OrderedFuture> hook_future(const c10::intrusive_ptr<CollectiveWork>& work,
                                           const c10::intrusive_ptr<c10d::Work>& share_work,
                                           const std::optional<at::Tensor>& share) {
  const auto result = [share_work, share](c10::ivalue::Future& done) {
    at::Tensor average = done.value().toTensorVector().at(0);
    if (share_work && share) {
      share_work->wait();
      average.div_(share->item());
    }
    const py::gil_scoped_acquire held;
    return torch::jit::toIValue(py::cast(average), c10::PyObjectType::get());
  };
  return std::make_shared<OrderedFuture>(work->getFuture()->then(result, c10::PyObjectType::get()),
                                         work->share()->order, work->share()->pool);
}

}  // namespace qccl::torch_binding
