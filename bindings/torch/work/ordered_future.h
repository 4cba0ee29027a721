// The object that get_future() returns to Python: a torch.futures.Future whose callbacks run in the
// order in which then() was called (completion_order.h).
//
// Like torch's own, a complete future runs a callback at once, in the thread that calls then(), unless earlier
// callbacks have yet to run. All other callbacks run on the completion pool. If they ran as their operations end,
// callbacks that start collectives (PowerSGD's do) would be called in a different order on every rank.
#pragma once

#include <torch/csrc/jit/python/pybind_utils.h>

#include <functional>
#include <memory>

#include "work/work.h"

namespace qccl::torch_binding {

// The second base makes enable_shared_from_this ambiguous, so that pybind11 leaves it alone: with
// the first base alone it wants to cast down to a class that has no virtual functions.
class VISIBILITY_HIDDEN OrderedFuture : public torch::jit::PythonFutureWrapper,
                                        private std::enable_shared_from_this<OrderedFuture> {
 public:
  using Future = c10::ivalue::Future;

  OrderedFuture(c10::intrusive_ptr<Future> future, std::shared_ptr<CompletionOrder> order,
                std::shared_ptr<CompletionPool> pool);

  // Like the functions of torch.futures.Future.
  std::shared_ptr<OrderedFuture> then(py::function callback);
  void add_done_callback(py::function callback);
  // Inside a callback it does not wait for its turn, which could only come after the callback's end.
  py::object wait();

 private:
  // Takes a ticket of the order; at its turn, `target` gets this future's value.
  CompletionOrder::TicketPointer pass_on_in_turn(const c10::intrusive_ptr<Future>& target,
                                                 std::function<void()> announce = nullptr);
  // The origin of a future that then() returned.
  struct Origin {
    CompletionOrder::TicketPointer ticket;  // the callback's
    c10::intrusive_ptr<Future> source;      // its value is passed to the callback
    std::shared_ptr<const Origin> of_source;
  };
  static void complete_inside_callback(const Origin& origin);

  const std::shared_ptr<CompletionOrder> order_;
  const std::shared_ptr<CompletionPool> pool_;
  std::shared_ptr<const Origin> origin_;
};

// The future of a call.
std::shared_ptr<OrderedFuture> ordered_future(const c10::intrusive_ptr<CollectiveWork>& work);

// The future that a communication hook gives to DDP, made without a Python callback: inside one, torch turns every
// error of the operation into a RuntimeError. Its value is the only output of `work`, an all_reduce in flight, as the
// Python object that DDP expects. If `share_work` and `share` are given, waits for `share_work` and divides the output
// by `share`. Call it without the interpreter's lock.
std::shared_ptr<OrderedFuture> hook_future(const c10::intrusive_ptr<CollectiveWork>& work,
                                           const c10::intrusive_ptr<c10d::Work>& share_work,
                                           const std::optional<at::Tensor>& share);

}  // namespace qccl::torch_binding
