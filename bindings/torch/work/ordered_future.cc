#include "work/ordered_future.h"

#include <ATen/core/jit_type.h>

#include <utility>

namespace qccl::torch_binding {
namespace {

void copy_outcome(c10::ivalue::Future& source, c10::ivalue::Future& target) {
  try {
    if (source.hasError()) {
      target.setError(source.exception_ptr());
    } else {
      target.markCompleted(source.value());
    }
  } catch (const std::exception&) {
    // A callback threw; the future that its then() returned has the error.
  }
}

}  // namespace

OrderedFuture::OrderedFuture(c10::intrusive_ptr<Future> future, std::shared_ptr<CompletionOrder> order,
                             std::shared_ptr<CompletionPool> pool)
    : PythonFutureWrapper(std::move(future)), order_(std::move(order)), pool_(std::move(pool)) {}

CompletionOrder::TicketPointer OrderedFuture::pass_on_in_turn(const c10::intrusive_ptr<Future>& target,
                                                              std::function<void()> announce) {
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

// Adds the callback to a separate future, before that future can be completed.
std::shared_ptr<OrderedFuture> OrderedFuture::then(py::function callback) {
  const auto value = std::make_shared<PythonFutureWrapper>(c10::make_intrusive<Future>(fut->elementType()));
  const auto returned = value->then(std::move(callback))->fut;
  const auto announced = c10::make_intrusive<Future>(returned->elementType());
  const auto announce = [returned, announced] { copy_outcome(*returned, *announced); };
  auto next = std::make_shared<OrderedFuture>(announced, order_, pool_);
  next->origin_ = std::make_shared<Origin>(Origin{pass_on_in_turn(value->fut, announce), fut, origin_});
  return next;
}

void OrderedFuture::add_done_callback(py::function callback) {
  const auto value = std::make_shared<PythonFutureWrapper>(c10::make_intrusive<Future>(fut->elementType()));
  value->add_done_callback(std::move(callback));
  pass_on_in_turn(value->fut);
}

py::object OrderedFuture::wait() {
  if (origin_ && CompletionOrder::inside_callback()) complete_inside_callback(*origin_);
  return PythonFutureWrapper::wait();
}

void OrderedFuture::complete_inside_callback(const Origin& origin) {
  if (origin.of_source) complete_inside_callback(*origin.of_source);
  origin.source->wait();
  CompletionOrder::complete_inside_callback(origin.ticket);
}

std::shared_ptr<OrderedFuture> ordered_future(const c10::intrusive_ptr<CollectiveWork>& work) {
  return std::make_shared<OrderedFuture>(work->getFuture(), work->share()->order, work->share()->pool);
}

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
  const WorkShare& group = *work->share();
  return std::make_shared<OrderedFuture>(work->getFuture()->then(result, c10::PyObjectType::get()), group.order,
                                         group.pool);
}

}  // namespace qccl::torch_binding
