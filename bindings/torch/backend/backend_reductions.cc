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
  const auto own = state();
  if (with_torch_errors([&] { return own->group.choice(sum); }).compression.is_none()) return;
  const std::lock_guard lock(own->posting);
  sum.options.error_feedback = own->feedback_by_address.of(sum.output, sum.count);
}

// Adds a reduction with the compression that the group has for it. `keeps_feedback`: it may have the group's.
void Backend::add_sum(CollectiveCall sum, TorchCall& call, bool keeps_feedback) {
  state()->environment_sums.restrict(sum);
  if (keeps_feedback) keep_feedback(sum);
  // The next call with it is to be made after this one.
  if (!sum.options.error_feedback.is_none()) call.is_gated = false;
  call.post(std::move(sum));
}

void Backend::add_all_reduce(const CompressedPart& part, const c10d::ReduceOp& op, TorchCall& call) {
  check_writable(part.tensor, "all_reduce");
  CallOptions options = call.options;
  options.compression = part.compression;
  options.error_feedback = part.feedback;
  options.keep_input = part.keep_input;
  const Elements elements = reduction_of(part.tensor, op, "all_reduce", options);
  const at::Tensor memory = call.memory.update(part.tensor);
  add_sum(call_on(Collective::all_reduce, {memory, memory}, memory, elements, std::move(options)), call,
          elements.parts == 1);
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
  const auto own = state();
  const std::string sequence = wait_for_turn(call, *own);
  int number = 0;
  {
    const std::lock_guard lock(own->posting);
    number = own->sparse_reductions[sequence]++;
  }
  if (const auto stream = call.stream()) open_device(own->group, *stream);
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
  CallMemory::Pair memory;
  memory.source = root ? call.memory.update(tensor) : call.memory.read(tensors);
  if (root) memory.target = memory.source;
  add_sum(call_on(Collective::reduce, memory, memory.source, elements, call.options), call);
  return start(std::move(call));
}

// The inputs are one of each rank, or one tensor of all of them.
void Backend::add_reduce_scatter(const at::Tensor& output, const Tensors& inputs, const c10d::ReduceOp& op,
                                 TorchCall& call) {
  CallOptions options = call.options;
  const Elements elements = reduction_of(output, op, "reduce_scatter", options);
  const std::vector<std::size_t> counts = uneven_counts(inputs, elements);
  const auto memory = call.memory.read_and_write(inputs, {output}, bytes_before_own(*this, inputs));
  CollectiveCall sum = call_on(Collective::reduce_scatter, memory, memory.target, elements, std::move(options));
  if (!counts.empty()) sum.counts = counts;
  add_sum(std::move(sum), call);
}

Backend::WorkPointer Backend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                             const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  require(inputs.size() == 1, "reduce_scatter", "takes one list of inputs a rank");
  const Tensors& list = inputs.front();
  check_writable(output, "reduce_scatter");
  check_list(*this, list, output, "reduce_scatter");
  TorchCall call = make_call(c10d::OpType::REDUCE_SCATTER, "qccl:reduce_scatter", list, {outputs}, options);
  add_reduce_scatter(output, list, options.reduceOp, call);
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
  call.options.together = static_cast<std::size_t>(whole.numel());
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
