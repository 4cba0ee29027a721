// The object that get_future() returns to Python: a torch.futures.Future whose callbacks run in the
// order in which then() was called (completion_order.h).
//
// Like torch's own, a complete future runs a callback at once, in the thread that calls then(), unless earlier
// callbacks have yet to run. All other callbacks run on the completion pool. If they ran as their operations end,
// callbacks that start collectives (PowerSGD's do) would be called in a different order on every rank.
#pragma once

#include <ATen/core/jit_type.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <functional>
#include <memory>
#include <utility>

#include "work/work.h"

namespace qccl::torch_binding {

inline void copy_outcome(c10::ivalue::Future& source, c10::ivalue::Future& target) {
  try {
    if (source.hasError()) {
      target.setError(source.exception_ptr());
    } else {
      // This thread's streams come after those of the callback, and the target's events after both.
      if (!source.devices().empty()) source.wait();
      target.markCompleted(source.value());
    }
  } catch (const std::exception&) {
    // A callback threw; the future that its then() returned has the error.
  }
}

// The second base makes enable_shared_from_this ambiguous, so that pybind11 leaves it alone: with
// the first base alone it wants to cast down to a class that has no virtual functions.
class VISIBILITY_HIDDEN OrderedFuture : public torch::jit::PythonFutureWrapper,
                                        private std::enable_shared_from_this<OrderedFuture> {
 public:
  using Future = c10::ivalue::Future;

  OrderedFuture(c10::intrusive_ptr<Future> future, std::shared_ptr<CompletionOrder> order,
                std::shared_ptr<CompletionPool> pool)
      : PythonFutureWrapper(std::move(future)), order_(std::move(order)), pool_(std::move(pool)) {}

  // These are like the functions of torch.futures.Future. A callback is added to a separate future, before that future
  // can be completed.
  std::shared_ptr<OrderedFuture> then(py::function callback) {
    const auto value =
        std::make_shared<PythonFutureWrapper>(c10::make_intrusive<Future>(fut->elementType(), fut->devices()));
    const auto returned = value->then(std::move(callback))->fut;
    const auto announced = c10::make_intrusive<Future>(returned->elementType(), returned->devices());
    const auto announce = [returned, announced] { copy_outcome(*returned, *announced); };
    auto next = std::make_shared<OrderedFuture>(announced, order_, pool_);
    next->origin_ = std::make_shared<Origin>(Origin{pass_on_in_turn(value->fut, announce), fut, origin_});
    return next;
  }
  void add_done_callback(py::function callback) {
    const auto value =
        std::make_shared<PythonFutureWrapper>(c10::make_intrusive<Future>(fut->elementType(), fut->devices()));
    value->add_done_callback(std::move(callback));
    pass_on_in_turn(value->fut);
  }

  // Inside a callback it does not wait for its turn, which could only come after the callback's end.
  py::object wait() {
    if (origin_ && CompletionOrder::inside_callback()) complete_inside_callback(*origin_);
    return PythonFutureWrapper::wait();
  }

 private:
  // Takes a ticket of the order; at its turn, `target` gets this future's value.
  CompletionOrder::TicketPointer pass_on_in_turn(const c10::intrusive_ptr<Future>& target,
                                                 std::function<void()> announce = nullptr) {
    auto ticket = order_->take_ticket([source = fut, target] { copy_outcome(*source, *target); }, std::move(announce));
    const auto end_elsewhere = [pool = pool_, ticket] { pool->push([ticket] { CompletionOrder::ended(ticket); }); };
    if (!fut->completed()) {
      pool_->expect();
      fut->addCallback([end_elsewhere](Future&) { end_elsewhere(); }, /*uses_future=*/false);
    } else if (CompletionOrder::complete_at_once(ticket)) {
      pool_->expect();
      end_elsewhere();
    }
    return ticket;
  }

  // The origin of a future that then() returned.
  struct Origin {
    CompletionOrder::TicketPointer ticket;  // the callback's
    c10::intrusive_ptr<Future> source;      // its value is passed to the callback
    std::shared_ptr<const Origin> of_source;
  };

  static void complete_inside_callback(const Origin& origin) {
    if (origin.of_source) complete_inside_callback(*origin.of_source);
    origin.source->wait();
    CompletionOrder::complete_inside_callback(origin.ticket);
  }

  const std::shared_ptr<CompletionOrder> order_;
  const std::shared_ptr<CompletionPool> pool_;
  std::shared_ptr<const Origin> origin_;
};

// The future of a call.
inline std::shared_ptr<OrderedFuture> ordered_future(const c10::intrusive_ptr<CollectiveWork>& work) {
  return std::make_shared<OrderedFuture>(work->getFuture(), work->share()->order, work->share()->pool);
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
  const WorkShare& group = *work->share();
  return std::make_shared<OrderedFuture>(work->getFuture()->then(result, c10::PyObjectType::get()), group.order,
                                         group.pool);
}

}  // namespace qccl::torch_binding
