// The part of Backend for reductions.
#include <algorithm>
#include <utility>

#include "backend/backend.h"
#include "torch_release.h"

namespace qccl::torch_binding {

namespace {

void refuse_sparse(const CompressedPart& part) {
  const bool is_plain = !part.compression || part.compression->is_none();
  if (is_plain && part.feedback.is_none()) return;
  C10_THROW_ERROR(NotImplementedError,
                  "qccl: all_reduce: sparse tensors are never compressed: leave compression and error_feedback out");
}

}  // namespace

ErrorFeedback FeedbackByAddress::of(const void* data, std::size_t count) {
  const auto found = std::find_if(items_.begin(), items_.end(),
                                  [&](const Item& item) { return item.data == data && item.feedback.size() == count; });
  if (found != items_.end()) {
    items_.splice(items_.begin(), items_, found);
    return items_.front().feedback;
  }
  if (items_.size() == kKept) items_.pop_back();
  items_.push_front({data, ErrorFeedback(count)});
  return items_.front().feedback;
}

// If the group keeps feedback for all calls and this one has none of its own, gives it the feedback of its memory.
void Backend::keep_feedback(CollectiveCall& sum) {
  if (!sum.options.error_feedback.is_none() || !options_->settings.error_feedback) return;
  if (with_torch_errors([&] { return group_.choice(sum); }).compression.is_none()) return;
  const std::lock_guard lock(posting_);
  sum.options.error_feedback = feedback_by_address_.of(sum.output, sum.count);
}

void Backend::add_all_reduce(const CompressedPart& part, const c10d::ReduceOp& op, TorchCall& call) {
  check_writable(part.tensor, "all_reduce");
  CallOptions options = call.options;
  options.compression = part.compression;
  options.error_feedback = part.feedback;
  options.keep_input = part.keep_input;
  const Elements elements = reduction_of(part.tensor, op, "all_reduce", options);
  const at::Tensor memory = call.memory.update(part.tensor);
  void* const data = memory.mutable_data_ptr();
  CollectiveCall sum{Collective::all_reduce, data, data, elements.count_in(memory), elements.type, std::move(options)};
  environment_sums_.restrict(sum);
  if (elements.parts == 1) keep_feedback(sum);
  // The next call with it is to be made after this one.
  if (!sum.options.error_feedback.is_none()) call.is_gated = false;
  call.post(std::move(sum));
}

Backend::WorkPointer Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const auto is_sparse = [](const at::Tensor& tensor) { return tensor.defined() && tensor.layout() == at::kSparse; };
  if (std::any_of(tensors.begin(), tensors.end(), is_sparse)) return allreduce_sparse(tensors, options);
  check_alike(tensors, "all_reduce");
  TorchCall call = make_call(c10d::OpType::ALLREDUCE, "qccl:all_reduce", tensors, {tensors}, options);
  if (tensors.size() == 1) {
    add_all_reduce({tensors.front()}, options.reduceOp, call);
  } else {
    for (const at::Tensor& tensor : tensors) check_writable(tensor, "all_reduce");
    const at::Tensor sum = call.memory.stage(local_reduction(tensors, options.reduceOp, "all_reduce"), tensors);
    add_all_reduce({sum}, options.reduceOp, call);
  }
  return start(std::move(call));
}

Backend::WorkPointer Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "all_reduce");
  TorchCall call = make_call(c10d::OpType::_ALLREDUCE_SPARSE, "qccl:sparse_all_reduce", tensors, {tensors}, options);
  const std::string sequence = wait_for_turn(call);
  int number = 0;
  {
    const std::lock_guard lock(posting_);
    number = sparse_reductions_[sequence]++;
  }
  if (const auto stream = call.stream()) open_device(group_, *stream);
  add_sparse_all_reduce({tensor, options.reduceOp, getRank(), getSize(), kReservedTags + number % (kReservedTags / 2)},
                        call);
  return start(std::move(call));
}

Backend::WorkPointer Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TorchCall call = make_call(c10d::OpType::ALLREDUCE_COALESCED, "qccl:all_reduce", tensors, {tensors}, options);
  for (const at::Tensor& tensor : tensors) add_all_reduce({tensor}, options.reduceOp, call);
  return start(std::move(call));
}

Backend::WorkPointer Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "reduce");
  require(options.rootTensor == 0, "reduce", "the root tensor must be number 0, it is ", options.rootTensor);
  const bool root = options.rootRank == getRank();
  check_writable(tensor, "reduce");  // on every rank, so that all refuse the same call
  TorchCall call = make_call(c10d::OpType::REDUCE, "qccl:reduce", tensors, {tensors}, options);
  const Elements elements = reduction_of(tensor, options.reduceOp, "reduce", call.options);
  call.options.root = static_cast<int>(options.rootRank);
  const at::Tensor memory = root ? call.memory.update(tensor) : call.memory.read(tensors);
  void* const target = root ? memory.mutable_data_ptr() : nullptr;
  CollectiveCall sum{Collective::reduce,        memory.const_data_ptr(), target,
                     elements.count_in(memory), elements.type,           call.options};
  environment_sums_.restrict(sum);
  call.post(std::move(sum));
  return start(std::move(call));
}

void Backend::add_reduce_scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op,
                                 TorchCall& call) {
  CallOptions options = call.options;
  const Elements elements = reduction_of(output, op, "reduce_scatter", options);
  const auto [source, target] =
      call.memory.read_and_write(inputs, {output}, static_cast<std::size_t>(getRank()) * output.nbytes());
  CollectiveCall sum{Collective::reduce_scatter, source.const_data_ptr(), target.mutable_data_ptr(),
                     elements.count_in(target),  elements.type,           std::move(options)};
  environment_sums_.restrict(sum);
  call.post(std::move(sum));
}

Backend::WorkPointer Backend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                             const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  require(inputs.size() == 1, "reduce_scatter", "takes one list of inputs a rank");
  const Tensors& list = inputs.front();
  check_writable(output, "reduce_scatter");
  check_list(*this, list, output, "reduce_scatter");
  TorchCall call = make_call(c10d::OpType::REDUCE_SCATTER, "qccl:reduce_scatter", list, {outputs}, options);
  const Elements elements = reduction_of(output, options.reduceOp, "reduce_scatter", call.options);
  const std::vector<std::size_t> counts = counts_of(list, elements);
  if (all_equal(counts)) {
    add_reduce_scatter(output, list, options.reduceOp, call);
    return start(std::move(call));
  }
  const std::size_t offset = bytes_of(std::span(list).first(static_cast<std::size_t>(getRank())));
  const auto [source, target] = call.memory.read_and_write(list, outputs, offset);
  CollectiveCall sum{
      Collective::reduce_scatter, source.const_data_ptr(), target.mutable_data_ptr(), 0, elements.type, call.options};
  sum.counts = counts;
  environment_sums_.restrict(sum);
  call.post(std::move(sum), counts);
  return start(std::move(call));
}

Backend::WorkPointer Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Backend::WorkPointer Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::ReduceScatterOptions& options) {
  require(outputs.size() == inputs.size(), "reduce_scatter", "needs as many inputs as outputs");
  TorchCall call = make_call(kReduceScatterTensorCoalesced, "qccl:_reduce_scatter_base", inputs, {outputs}, options);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_writable(outputs[i], "reduce_scatter");
    check_parts(*this, inputs[i], outputs[i], "reduce_scatter");
    add_reduce_scatter(outputs[i], {inputs[i]}, options.reduceOp, call);
  }
  return start(std::move(call));
}

// ---- Calls that choose their own compression

Backend::WorkPointer Backend::all_reduce_parts(const std::vector<CompressedPart>& parts, const at::Tensor& whole,
                                               const c10d::ReduceOp& op, bool asynchronous) {
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  options.asyncOp = asynchronous;
  Tensors tensors{whole};
  if (whole.layout() == at::kSparse) {
    for (const CompressedPart& part : parts) refuse_sparse(part);
    return allreduce_sparse(tensors, options);
  }
  TorchCall call = make_call(c10d::OpType::ALLREDUCE, "qccl:all_reduce", tensors, {tensors}, options);
  for (const CompressedPart& part : parts) add_all_reduce(part, op, call);
  return start(std::move(call));
}

Backend::WorkPointer Backend::reduce_scatter_part(const CompressedPart& input, const at::Tensor& output,
                                                  const c10d::ReduceOp& op, bool asynchronous) {
  check_writable(output, "reduce_scatter");
  check_parts(*this, input.tensor, output, "reduce_scatter");
  c10d::ReduceScatterOptions options;
  options.asyncOp = asynchronous;
  TorchCall call = make_call(c10d::OpType::REDUCE_SCATTER, "qccl:reduce_scatter", {input.tensor}, {{output}}, options);
  call.options.compression = input.compression;
  call.options.error_feedback = input.feedback;
  add_reduce_scatter(output, {input.tensor}, op, call);
  return start(std::move(call));
}

}  // namespace qccl::torch_binding
