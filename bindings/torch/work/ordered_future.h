// What get_future() gives to Python: a torch.futures.Future whose callbacks run in the order in
// which then() was called (completion_order.h).
//
// As torch's own, a complete future runs a callback at once, in the thread that calls then(),
// unless earlier callbacks are still to run. Those and all others run on the completion pool: run
// as their operations end, callbacks that start collectives (PowerSGD's do) would be called in
// another order on every rank.
#pragma once

#include <torch/csrc/jit/python/pybind_utils.h>

#include <functional>
#include <memory>

#include "work/completion_order.h"
#include "work/completion_pool.h"

namespace qccl::torch_binding {

// The second base makes enable_shared_from_this ambiguous, so that pybind11 leaves it alone: with
// the first base alone it wants to cast down to a class that has no virtual functions.
class VISIBILITY_HIDDEN OrderedFuture : public torch::jit::PythonFutureWrapper,
                                        private std::enable_shared_from_this<OrderedFuture> {
 public:
  using Future = c10::ivalue::Future;

  OrderedFuture(c10::intrusive_ptr<Future> future, std::shared_ptr<CompletionOrder> order,
                std::shared_ptr<CompletionPool> pool);

  // As torch.futures.Future's.
  std::shared_ptr<OrderedFuture> then(py::function callback);
  void add_done_callback(py::function callback);
  // In a callback it does not wait for its turn, which could only come after the callback's end.
  py::object wait();

 private:
  // Takes a place, in which `target` will get this future's value.
  CompletionOrder::PlacePointer pass_on_in_turn(const c10::intrusive_ptr<Future>& target,
                                                std::function<void()> announce = nullptr);
  // Of a future that then() returned.
  struct Origin {
    CompletionOrder::PlacePointer place;  // the callback's
    c10::intrusive_ptr<Future> source;    // what the callback gets the value of
    std::shared_ptr<const Origin> of_source;
  };
  static void complete_inside_callback(const Origin& origin);

  const std::shared_ptr<CompletionOrder> order_;
  const std::shared_ptr<CompletionPool> pool_;
  std::shared_ptr<const Origin> origin_;
};

}  // namespace qccl::torch_binding
