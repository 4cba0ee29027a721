#include "work/work.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "tensors.h"

namespace qccl::torch_binding {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::vector<OperationTrace::Tensor> shapes_of(const std::vector<at::Tensor>& tensors) {
  std::vector<OperationTrace::Tensor> shapes;
  for (const at::Tensor& tensor : tensors) {
    shapes.push_back({tensor.sizes().vec(), c10::toString(tensor.scalar_type())});
  }
  return shapes;
}

// A list that stands for one tensor of all ranks' parts: torch's recorder shows that one.
bool has_part_of_each_rank(c10d::OpType type, bool is_input) {
  switch (type) {
    case c10d::OpType::ALLTOALL: return true;
    case c10d::OpType::SCATTER:
    case c10d::OpType::REDUCE_SCATTER: return is_input;
    case c10d::OpType::GATHER:
    case c10d::OpType::ALLGATHER: return !is_input;
    default: return false;
  }
}

// Of `list` as one tensor: their shapes behind their number if they are alike, else the number of their elements.
OperationTrace::Tensor whole_of(const std::vector<at::Tensor>& list) {
  const at::Tensor& first = list.front();
  std::vector<std::int64_t> shape{static_cast<std::int64_t>(list.size())};
  shape.insert(shape.end(), first.sizes().begin(), first.sizes().end());
  std::int64_t elements = 0;
  bool are_alike = true;
  for (const at::Tensor& tensor : list) {
    elements += tensor.numel();
    are_alike &= tensor.sizes() == first.sizes();
  }
  return {are_alike ? shape : std::vector<std::int64_t>{elements}, c10::toString(first.scalar_type())};
}

std::vector<OperationTrace::Tensor> shown(const TorchCall& call, const std::vector<at::Tensor>& list, bool is_input) {
  if (!list.empty() && has_part_of_each_rank(call.type, is_input)) return {whole_of(list)};
  return shapes_of(list);
}

OperationTrace::Operation traced(const TorchCall& call, const PostedOperations& operations, std::uint64_t sequence) {
  OperationTrace::Operation operation{.name = call.title,
                                      .is_message = call.is_message(),
                                      .peer = call.peer,
                                      .sequence = sequence,
                                      .number = operations.first_number(),
                                      .parts = call.posts.size(),
                                      .timeout_ms = call.timeout().count(),
                                      .inputs = shown(call, call.inputs, true),
                                      .outputs = {}};
  for (const auto& list : call.outputs) {
    for (auto& shape : shown(call, list, false)) operation.outputs.push_back(std::move(shape));
  }
  return operation;
}

// Number `index` of the messages of a batch.
OperationTrace::Operation traced_message(const TorchCall& call, const PostedOperations& operations, std::size_t index) {
  const TorchCall::Message& message = call.messages[index];
  const auto number = [first = operations.first_number(), index] {
    const std::uint64_t known = first();
    return known == 0 ? 0 : known + index;
  };
  return {.name = message.title,
          .is_message = true,
          .peer = message.peer,
          .number = number,
          .timeout_ms = call.timeout().count(),
          .inputs = shapes_of({message.tensor}),
          .outputs = shapes_of({message.tensor})};
}

std::string text_of(const std::exception_ptr& failure) {
  if (!failure) return "";
  try {
    std::rethrow_exception(failure);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
}

// Without the CPU.
void add_devices(const std::vector<at::Tensor>& tensors, std::vector<c10::Device>& devices) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu()) continue;
    if (std::ranges::find(devices, tensor.device()) == devices.end()) devices.push_back(tensor.device());
  }
}

std::vector<c10::Device> devices_of(const TorchCall& call) {
  std::vector<c10::Device> devices;
  add_devices(call.inputs, devices);
  for (const auto& list : call.outputs) add_devices(list, devices);
  return devices;
}

// Copies the results of a call whose operations have ended.
CallEnd end_of(TorchCall& call, const PostedOperations& operations) {
  for (const auto& work : call.earlier) work->wait_for_results();
  CallEnd end = operations.end();
  if (end.failure) return end;
  try {
    call.memory.finish();
    for (const auto& ending : call.endings) ending();
  } catch (const std::exception&) {
    end = {std::current_exception(), c10d::WorkResult::UNKNOWN};
  }
  return end;
}

c10d::ErrorType error_type(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::deadline_exceeded: return c10d::ErrorType::TIMEOUT;
    case ErrorKind::peer_lost: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

}  // namespace

// ---- PostedOperations

// Several operations are one group of the library (group_start() to group_end()).
void PostedOperations::post(TorchCall& call, Communicator group) {
  devices_ = devices_of(call);
  end_on_streams_ = call.ends_on_streams();
  first_ = with_torch_errors([&] {
    if (call.posts.size() == 1) return call.posts.front()(group);
    group.group_start();
    for (const TorchCall::Post& post : call.posts) post(group);
    return group.group_end();
  });
  if (!call.later_post) return;
  later_post_ = std::move(call.later_post);
  group_ = std::move(group);
}

void PostedOperations::wait(std::chrono::milliseconds timeout) {
  const auto wait_for = [timeout](const qccl::Work& operation) {
    try {
      timeout > kNoTimeout ? operation.wait(timeout) : operation.wait();
    } catch (const Error& error) {
      if (!operation.done()) std::rethrow_exception(to_torch(error.info()));
    }
  };
  wait_for(first_);
  if (post_later()) wait_for(*later_);
}

void PostedOperations::note_failure(const std::shared_ptr<WorkShare>& share) const {
  if (!end_on_streams_) return;
  first_.notify([first = first_, share] {
    if (first.error()) share->failed_on_stream = true;
  });
}

void PostedOperations::block(const std::vector<c10::Stream>& streams) const {
  with_torch_errors([&] {
    for (const c10::Stream& stream : streams) first_.block({stream.device_index(), stream.native_handle()});
  });
}

void PostedOperations::block_current_streams() const {
  std::vector<c10::Stream> streams;
  for (const c10::Device device : devices_) {
    streams.push_back(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  block(streams);
}

void PostedOperations::complete(c10::ivalue::Future& future, const c10::IValue& value) const {
  std::vector<c10::Stream> streams;
  for (const c10::Device device : devices_) {
    streams.push_back(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
  }
  try {
    block(streams);
  } catch (const std::exception&) {
    return future.setError(std::current_exception());
  }
  const c10::MultiStreamGuard guard(streams);
  future.markCompleted(value);
}

bool PostedOperations::post_later() {
  const std::lock_guard lock(mutex_);
  if (group_) {
    Communicator group = *std::exchange(group_, std::nullopt);
    const TorchCall::Post post = std::exchange(later_post_, nullptr);
    if (first_.error()) return false;
    try {
      later_ = with_torch_errors([&] { return post(group); });
    } catch (const std::exception&) {
      later_failure_ = std::current_exception();
    }
  }
  return later_.has_value();
}

void PostedOperations::notify(const std::function<void()>& ended) const {
  const std::lock_guard lock(mutex_);
  later_.value_or(first_).notify(ended);
}

CallEnd PostedOperations::end() const {
  auto error = first_.error();
  if (!error && later_) error = later_->error();
  if (error) {
    const bool late = error->kind == ErrorKind::deadline_exceeded;
    return {to_torch(*error), late ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR, error_type(error->kind)};
  }
  if (later_failure_) return {later_failure_, c10d::WorkResult::UNKNOWN};
  return {};
}

// ---- CollectiveWork

CollectiveWork::CollectiveWork(int rank, TorchCall call, std::shared_ptr<WorkShare> share)
    : c10d::Work(rank, call.type, call.title, call.inputs),
      call_(std::move(call)),
      share_(std::move(share)),
      timeout_(call_.options.timeout.value_or(share_->timeout.now())),
      completion_key_(share_->next_completion_key()) {}

void CollectiveWork::post(const Communicator& group, std::uint64_t sequence) {
  operations_.post(call_, group);
  operations_.note_failure(share_);
  timeout_extension_ = share_->timeout.claim();
  sequence_ = sequence;
  if (call_.messages.empty()) {
    trace_records_.push_back(share_->trace->begin(share_->trace_group, traced(call_, operations_, sequence)));
  }
  for (std::size_t i = 0; i < call_.messages.size(); ++i) {
    trace_records_.push_back(share_->trace->begin(share_->trace_group, traced_message(call_, operations_, i)));
  }
}

void CollectiveWork::complete_from_pool(bool may_post_later) {
  share_->pool->expect();
  // The thread that ends the operations must not free tensors, so the reference to the Work moves on to the pool.
  const auto held =
      std::make_shared<c10::intrusive_ptr<CollectiveWork>>(c10::intrusive_ptr<CollectiveWork>::reclaim_copy(this));
  operations_.notify([held, may_post_later] {
    const auto pool = (*held)->share_->pool;
    pool->push([work = std::move(*held), may_post_later] {
      if (may_post_later && work->operations_.post_later()) {
        work->complete_from_pool(false);
      } else {
        work->complete();
      }
    });
  });
}

bool CollectiveWork::wait_for_results(SteadyClock::time_point deadline) {
  auto timeout = kNoTimeout;
  if (deadline != SteadyClock::time_point::max()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
    timeout = std::max(left, std::chrono::milliseconds(1));
  }
  try {
    if (!has_results_) operations_.wait(timeout);
  } catch (const std::exception&) {
    return false;
  }
  end();
  return true;
}

// Call the following two when the operations have ended. Each does its work once.

// Copies results to their tensors and frees the memory that the library used.
void CollectiveWork::end() {
  if (has_results_ || !take_results()) return;
  auto none = c10d::ErrorType::SUCCESS;
  run_hooks(share_->first_error.compare_exchange_strong(none, end_.error) && end_.error != none);
}

// Then completes the futures, whose callbacks run here. Inside a callback it leaves them to the pool.
void CollectiveWork::complete() {
  end();
  if (CallbackOrder::inside_callback()) return;
  value_.complete([this](auto& future) { complete_value(future); });
  result_.complete([this](auto& future) { complete_result(future); });
}

// Returns false if another thread has.
bool CollectiveWork::take_results() {
  const std::lock_guard lock(completing_);
  if (has_results_) return false;
  end_ = end_of(call_, operations_);
  end_.at = SteadyClock::now();
  const std::string failure = text_of(end_.failure);
  for (const auto record : trace_records_) {
    share_->trace->end(share_->trace_group, record, failure, operations_.source());
  }
  call_.release();
  share_->timeout.release(timeout_extension_);
  has_results_ = true;
  finish(end_.failure);
  return true;
}

// Without locks: hooks may ask this Work.
void CollectiveWork::run_hooks(bool group_failed) const {
  if (group_failed) share_->hooks->failure.run();
  if (end_.failure) return;
  share_->hooks->completion.run(completion_key_, getDuration());
  for (const std::uint64_t key : call_.part_keys) share_->hooks->completion.run(key, getDuration());
}

// ---- torch's queries

bool CollectiveWork::wait(std::chrono::milliseconds timeout) {
  if (operations_.end_on_streams() && timeout == kNoTimeout && !has_results_) {
    operations_.block_current_streams();
    return true;
  }
  if (!has_results_) operations_.wait(timeout);
  complete();
  value_.wait();
  result_.wait();
  if (end_.failure) std::rethrow_exception(end_.failure);
  synchronize();
  return true;
}

bool CollectiveWork::isCompleted() { return has_results_ && !value_.is_pending(); }

std::vector<at::Tensor> CollectiveWork::result() {
  if (call_.outputs.size() > 1) {
    C10_THROW_ERROR(DistBackendError, "qccl: result() of a list of lists: use get_future().value()");
  }
  return call_.value().toTensorVector();
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFuture() {
  return value_.get(
      call_.value_type(), operations_.devices(), has_results_, [this](auto& future) { complete_value(future); },
      operations_.end_on_streams());
}

c10::intrusive_ptr<c10::ivalue::Future> CollectiveWork::getFutureResult() {
  return result_.get(c10::IntType::get(), {}, has_results_, [this](auto& future) { complete_result(future); });
}

void CollectiveWork::complete_value(c10::ivalue::Future& future) const {
  if (operations_.end_on_streams() && !has_results_) return operations_.complete(future, call_.value());
  if (end_.failure) return future.setError(end_.failure);
  future.markCompleted(call_.value());
}

void CollectiveWork::complete_result(c10::ivalue::Future& future) const {
  future.markCompleted(c10::IValue(static_cast<std::int64_t>(end_.result)));
}

void CollectiveWork::abort() {
  if (!has_results_) share_->abort_group("this rank's program aborted one of its operations");
}

float CollectiveWork::getDuration() const {
  if (!has_results_) C10_THROW_ERROR(DistBackendError, "qccl: the operation has not ended, so it has no duration yet");
  return std::chrono::duration<float, std::milli>(end_.at - began_).count();
}

}  // namespace qccl::torch_binding
