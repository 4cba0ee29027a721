// The part of Backend for reductions.
#include <algorithm>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/sparse.h"
#include "torch_release.h"

namespace qccl::torch_binding {

Backend::WorkPointer Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const auto is_sparse = [](const at::Tensor& tensor) { return tensor.defined() && tensor.layout() == at::kSparse; };
  if (std::any_of(tensors.begin(), tensors.end(), is_sparse)) return allreduce_sparse(tensors, options);
  check_alike(tensors, "all_reduce");
  Call call{c10d::OpType::ALLREDUCE, "qccl:all_reduce", tensors, {tensors}, options.timeout};
  const CallOptions library_options = call_options(options.timeout, options.asyncOp);
  if (tensors.size() == 1) {
    add_all_reduce({tensors.front()}, library_options, options.reduceOp, call);
  } else {
    for (const at::Tensor& tensor : tensors) check_writable(tensor, "all_reduce");
    const at::Tensor sum = call.memory.stage(local_reduction(tensors, options.reduceOp, "all_reduce"), tensors);
    add_all_reduce({sum}, library_options, options.reduceOp, call);
  }
  return start(std::move(call), options.asyncOp);
}

Backend::WorkPointer Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  int number = 0;
  {
    const std::lock_guard lock(posting_);
    number = sparse_reductions_[CompletionOrder::current_sequence()]++;
  }
  SparseReduction reduction;
  reduction.tensor = only(tensors, "all_reduce");
  reduction.op = options.reduceOp;
  reduction.rank = getRank();
  reduction.world = getSize();
  reduction.tag = kReservedTags + number % (kReservedTags / 2);
  reduction.options = call_options(options.timeout, options.asyncOp);
  return start(sparse_all_reduce(std::move(reduction)), options.asyncOp);
}

Backend::WorkPointer Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Call call{c10d::OpType::ALLREDUCE_COALESCED, "qccl:all_reduce", tensors, {tensors}, options.timeout};
  for (const at::Tensor& tensor : tensors)
    add_all_reduce({tensor}, call_options(options.timeout, options.asyncOp), options.reduceOp, call);
  return start(std::move(call), options.asyncOp);
}

Backend::WorkPointer Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = only(tensors, "reduce");
  if (options.rootTensor != 0) {
    throw_bad_argument("reduce", "the root tensor must be number 0, it is " + std::to_string(options.rootTensor));
  }
  const bool root = options.rootRank == getRank();
  check_writable(tensor, "reduce");  // on every rank, so that all refuse the same call
  Call call{c10d::OpType::REDUCE, "qccl:reduce", tensors, {tensors}, options.timeout};
  CallOptions library_options = call_options(options.timeout, options.asyncOp);
  const Elements elements = reduction_of(tensor, options.reduceOp, "reduce", library_options);
  library_options.root = static_cast<int>(options.rootRank);
  const at::Tensor memory = root ? call.memory.update(tensor) : call.memory.read(tensors);
  call.posts.push_back([=, from = memory.const_data_ptr(), to = root ? memory.mutable_data_ptr() : nullptr,
                        count = elements.count_in(memory)](Communicator& group) {
    return group.reduce_async(from, to, count, elements.type, library_options);
  });
  return start(std::move(call), options.asyncOp);
}

void Backend::add_reduce_scatter(const at::Tensor& output, const Tensors& inputs, const CallOptions& options,
                                 const c10d::ReduceOp& op, Call& call) const {
  CallOptions library_options = options;
  const Elements elements = reduction_of(output, op, "reduce_scatter", library_options);
  const auto [source, target] =
      call.memory.read_and_write(inputs, {output}, static_cast<std::size_t>(getRank()) * output.nbytes());
  call.posts.push_back([=, from = source.const_data_ptr(), to = target.mutable_data_ptr(),
                        count = elements.count_in(target)](Communicator& group) {
    return group.reduce_scatter_async(from, to, count, elements.type, library_options);
  });
}

Backend::WorkPointer Backend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                             const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  if (inputs.size() != 1) throw_bad_argument("reduce_scatter", "takes one list of inputs a rank");
  const Tensors& list = inputs.front();
  check_writable(output, "reduce_scatter");
  check_list(list, output, "reduce_scatter");
  Call call{c10d::OpType::REDUCE_SCATTER, "qccl:reduce_scatter", list, {outputs}, options.timeout};
  CallOptions library_options = call_options(options.timeout, options.asyncOp);
  const Elements elements = reduction_of(output, options.reduceOp, "reduce_scatter", library_options);
  const std::vector<std::size_t> counts = counts_of(list, elements);
  if (all_equal(counts)) {
    add_reduce_scatter(output, list, library_options, options.reduceOp, call);
    return start(std::move(call), options.asyncOp);
  }
  std::size_t offset = 0;
  for (int rank = 0; rank < getRank(); ++rank) offset += list[static_cast<std::size_t>(rank)].nbytes();
  const auto [source, target] = call.memory.read_and_write(list, outputs, offset);
  call.posts.push_back([=, from = source.const_data_ptr(), to = target.mutable_data_ptr()](Communicator& group) {
    return group.reduce_scatter_v_async(from, to, counts, elements.type, library_options);
  });
  return start(std::move(call), options.asyncOp);
}

Backend::WorkPointer Backend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

Backend::WorkPointer Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::ReduceScatterOptions& options) {
  if (outputs.size() != inputs.size()) throw_bad_argument("reduce_scatter", "needs as many inputs as outputs");
  Call call{kReduceScatterTensorCoalesced, "qccl:_reduce_scatter_base", inputs, {outputs}, options.timeout};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_writable(outputs[i], "reduce_scatter");
    check_parts(inputs[i], outputs[i], "reduce_scatter");
    add_reduce_scatter(outputs[i], {inputs[i]}, call_options(options.timeout, options.asyncOp), options.reduceOp, call);
  }
  return start(std::move(call), options.asyncOp);
}

}  // namespace qccl::torch_binding
