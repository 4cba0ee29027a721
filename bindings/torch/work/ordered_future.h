// The object that get_future() returns to Python: a torch.futures.Future whose callbacks run as torch's do, in the
// thread that completes it, or at once if it is complete. Only their calls have an order (callback_order.h): without
// it, callbacks that start collectives (PowerSGD's do) would start them in a different order on every rank.
#pragma once

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "work/work.h"

namespace qccl::torch_binding {

// The second base makes enable_shared_from_this ambiguous, so that pybind11 leaves it alone: with
// the first base alone it wants to cast down to a class that has no virtual functions.
class VISIBILITY_HIDDEN OrderedFuture : public torch::jit::PythonFutureWrapper,
                                        private std::enable_shared_from_this<OrderedFuture> {
 public:
  using Future = c10::intrusive_ptr<c10::ivalue::Future>;
  using Callbacks = std::vector<std::weak_ptr<CallbackOrder::Turn>>;

  // `callbacks`: those that return before it is complete.
  OrderedFuture(Future future, std::shared_ptr<CallbackOrder> order, Callbacks callbacks = {})
      : PythonFutureWrapper(std::move(future)), order_(std::move(order)), callbacks_(std::move(callbacks)) {}

  // These are like the functions of torch.futures.Future.
  std::shared_ptr<OrderedFuture> then(py::function callback) {
    const auto turn = order_->add();
    Callbacks callbacks = callbacks_;
    callbacks.emplace_back(turn);
    return std::make_shared<OrderedFuture>(plain()->then(in_turn(std::move(callback), turn))->fut, order_,
                                           std::move(callbacks));
  }
  void add_done_callback(py::function callback) {
    plain()->add_done_callback(in_turn(std::move(callback), order_->add()));
  }

  // Inside a callback it does not wait for callbacks whose turn could only come after that one's end.
  py::object wait() {
    if (!fut->completed()) std::ranges::for_each(callbacks_, CallbackOrder::let_pass);
    return PythonFutureWrapper::wait();
  }

 private:
  std::shared_ptr<PythonFutureWrapper> plain() const { return std::make_shared<PythonFutureWrapper>(fut); }

  static py::function in_turn(py::function callback, CallbackOrder::TurnPointer turn) {
    return py::cpp_function(
        [callback = std::move(callback), turn = std::move(turn)](const py::object& future) mutable -> py::object {
          const CallbackOrder::Running running(std::move(turn));
          return callback(future);
        });
  }

  const std::shared_ptr<CallbackOrder> order_;
  const Callbacks callbacks_;
};

// The future of a call.
inline std::shared_ptr<OrderedFuture> ordered_future(const c10::intrusive_ptr<CollectiveWork>& work) {
  return std::make_shared<OrderedFuture>(work->getFuture(), work->share()->order);
}

// The future that a communication hook gives to DDP, made without a Python callback: inside one, torch turns every
// error of the operation into a RuntimeError. Its value is the only output of `work`, an all_reduce in flight, as the
// Python object that DDP expects. If `share_work` and `share` are given, waits for `share_work` and divides the output
// by `share`. Call it without the interpreter's lock.
inline std::shared_ptr<OrderedFuture> hook_future(const c10::intrusive_ptr<CollectiveWork>& work,
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
                                         work->share()->order);
}

}  // namespace qccl::torch_binding
