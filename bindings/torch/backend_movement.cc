// The part of Backend that moves elements without adding them.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "backend.h"

namespace qccl::torch_binding {
namespace {

// Elements for each rank of a tensor that is split along its first dimension: as `splits` says, or evenly.
std::vector<std::size_t> split_counts(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int world,
                                      const char* which) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const auto ranks = static_cast<std::size_t>(world);
  std::vector<std::int64_t> rows_of(splits);
  if (splits.empty()) {
    if (rows % world != 0) {
      throw_bad_argument("all_to_all", "without split sizes " + std::to_string(world) + " must divide the " + which +
                                           "'s first dimension, which is " + std::to_string(rows));
    }
    rows_of.assign(ranks, rows / world);
  }
  const std::int64_t sum = std::accumulate(rows_of.begin(), rows_of.end(), std::int64_t{0});
  const bool negative = std::any_of(rows_of.begin(), rows_of.end(), [](std::int64_t split) { return split < 0; });
  if (rows_of.size() != ranks || sum != rows || negative) {
    throw_bad_argument("all_to_all", "the " + std::string(which) + " split sizes must be " + std::to_string(world) +
                                         " numbers that add up to its first dimension, " + std::to_string(rows));
  }
  const std::size_t row = rows == 0 ? 0 : elements_of(tensor).count_in(tensor) / static_cast<std::size_t>(rows);
  std::vector<std::size_t> counts;
  for (const std::int64_t split : rows_of) counts.push_back(static_cast<std::size_t>(split) * row);
  return counts;
}

// `input` and `output` are contiguous and apart.
void add_all_to_all(const at::Tensor& input, const std::vector<std::size_t>& sends, const at::Tensor& output,
                    const std::vector<std::size_t>& receives, const CallOptions& options, Call& call) {
  call.memory.insert(call.memory.end(), {input, output});
  call.posts.push_back([=, from = input.const_data_ptr(), to = output.mutable_data_ptr(),
                        type = elements_of(input).type](Communicator& group) {
    return group.all_to_all_v_async(from, sends, to, receives, type, options);
  });
}

}  // namespace

Backend::WorkPointer Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  const bool root = options.rootRank == getRank();
  if (root) {
    check_readable(tensor, "broadcast");
  } else {
    check_writable(tensor, "broadcast");
  }
  Call call{c10d::OpType::BROADCAST, "qccl:broadcast", tensors, {tensors}};
  call.timeout = options.timeout;
  const at::Tensor memory = root ? readable_memory(tensor) : writable_memory(tensor, false, call.copies);
  call.memory.push_back(memory);
  const Elements elements = elements_of(memory);
  CallOptions library_options = call_options(options.timeout, options.asyncOp);
  library_options.root = static_cast<int>(options.rootRank);
  call.posts.push_back([=, data = memory.data_ptr(), count = elements.count_in(memory)](Communicator& group) {
    return group.broadcast_async(data, count, elements.type, library_options);
  });
  return start(std::move(call), options.asyncOp);
}

// ---- all_gather

void Backend::add_all_gather(const at::Tensor& output, const at::Tensor& input, const CallOptions& options,
                             Call& call) const {
  const at::Tensor target = writable_memory(output, false, call.copies);
  const at::Tensor own = readable_memory(input);
  const at::Tensor source = without_overlap(own, target, static_cast<std::size_t>(getRank()) * own.nbytes());
  const Elements elements = elements_of(source);
  call.memory.insert(call.memory.end(), {source, target});
  call.posts.push_back([=, from = source.const_data_ptr(), to = target.mutable_data_ptr(),
                        count = elements.count_in(source)](Communicator& group) {
    return group.all_gather_async(from, to, count, elements.type, options);
  });
}

void Backend::add_all_gather(const Tensors& outputs, const at::Tensor& input, const CallOptions& options,
                             Call& call) const {
  check_readable(input, "all_gather");
  check_list(outputs, input, "all_gather");
  for (const at::Tensor& output : outputs) check_writable(output, "all_gather");
  const at::Tensor target = writable_list(outputs, call.copies);
  const Elements elements = elements_of(input);
  std::vector<std::size_t> counts = counts_of(outputs, elements);
  if (all_equal(counts)) return add_all_gather(target, input, options, call);
  std::size_t offset = 0;
  for (int rank = 0; rank < getRank(); ++rank) offset += outputs[static_cast<std::size_t>(rank)].nbytes();
  const at::Tensor source = without_overlap(readable_memory(input), target, offset);
  call.memory.insert(call.memory.end(), {source, target});
  call.posts.push_back([=, from = source.const_data_ptr(), to = target.mutable_data_ptr(),
                        counts = std::move(counts)](Communicator& group) {
    return group.all_gather_v_async(from, to, counts, elements.type, options);
  });
}

Backend::WorkPointer Backend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(inputs, "all_gather");
  if (outputs.size() != 1) throw_bad_argument("all_gather", "takes one list of outputs a rank");
  Call call{c10d::OpType::ALLGATHER, "qccl:all_gather", inputs, outputs};
  call.timeout = options.timeout;
  add_all_gather(outputs.front(), input, all_gather_options(input, options), call);
  return start(std::move(call), options.asyncOp);
}

// `outputs[rank]` is the list of that rank's inputs.
Backend::WorkPointer Backend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  if (outputs.size() != static_cast<std::size_t>(getSize())) {
    throw_bad_argument("all_gather_coalesced", "needs a list of outputs for each of " + std::to_string(getSize()) +
                                                   " ranks, got " + std::to_string(outputs.size()));
  }
  Call call{c10d::OpType::ALLGATHER_COALESCED, "qccl:all_gather", inputs, outputs};
  call.timeout = options.timeout;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      if (of_rank.size() != inputs.size()) {
        throw_bad_argument("all_gather_coalesced", "each list must have " + std::to_string(inputs.size()) +
                                                       " tensors, one has " + std::to_string(of_rank.size()));
      }
      list.push_back(of_rank[i]);
    }
    add_all_gather(list, inputs[i], all_gather_options(inputs[i], options), call);
  }
  return start(std::move(call), options.asyncOp);
}

Backend::WorkPointer Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

Backend::WorkPointer Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size()) throw_bad_argument("all_gather", "needs as many inputs as outputs");
  Call call{c10d::OpType::_ALLGATHER_BASE, "qccl:_all_gather_base", inputs, {outputs}};
  call.timeout = options.timeout;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_writable(outputs[i], "all_gather");
    check_parts(outputs[i], inputs[i], "all_gather");
    add_all_gather(outputs[i], inputs[i], all_gather_options(inputs[i], options), call);
  }
  return start(std::move(call), options.asyncOp);
}

// ---- One rank with all

Backend::WorkPointer Backend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs, "gather");
  const bool root = options.rootRank == getRank();
  check_readable(input, "gather");
  if (outputs.size() != (root ? 1U : 0U)) {
    throw_bad_argument("gather", "takes a list of outputs on the root, and none elsewhere");
  }
  Call call{c10d::OpType::GATHER, "qccl:gather", inputs, outputs};
  call.timeout = options.timeout;
  at::Tensor target;
  at::Tensor source = readable_memory(input);
  if (root) {
    check_even_list(outputs.front(), input, "gather");
    for (const at::Tensor& output : outputs.front()) check_writable(output, "gather");
    target = writable_list(outputs.front(), call.copies);
    source = without_overlap(source, target, static_cast<std::size_t>(getRank()) * source.nbytes());
  }
  call.memory.insert(call.memory.end(), {source, target});
  const Elements elements = elements_of(input);
  CallOptions library_options = call_options(options.timeout, options.asyncOp);
  library_options.root = static_cast<int>(options.rootRank);
  call.posts.push_back([=, from = source.const_data_ptr(), to = root ? target.mutable_data_ptr() : nullptr,
                        count = elements.count_in(source)](Communicator& group) {
    return group.gather_async(from, to, count, elements.type, library_options);
  });
  return start(std::move(call), options.asyncOp);
}

Backend::WorkPointer Backend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs, "scatter");
  const bool root = options.rootRank == getRank();
  check_writable(output, "scatter");
  if (inputs.size() != (root ? 1U : 0U)) {
    throw_bad_argument("scatter", "takes a list of inputs on the root, and none elsewhere");
  }
  Call call{c10d::OpType::SCATTER, "qccl:scatter", root ? inputs.front() : Tensors{}, {outputs}};
  call.timeout = options.timeout;
  const at::Tensor target = writable_memory(output, false, call.copies);
  at::Tensor source;
  if (root) {
    check_even_list(inputs.front(), output, "scatter");
    source = without_overlap_of_part(readable_list(inputs.front()), target,
                                     static_cast<std::size_t>(getRank()) * target.nbytes());
  }
  call.memory.insert(call.memory.end(), {source, target});
  const Elements elements = elements_of(target);
  CallOptions library_options = call_options(options.timeout, options.asyncOp);
  library_options.root = static_cast<int>(options.rootRank);
  call.posts.push_back([=, from = root ? source.const_data_ptr() : nullptr, to = target.mutable_data_ptr(),
                        count = elements.count_in(target)](Communicator& group) {
    return group.scatter_async(from, to, count, elements.type, library_options);
  });
  return start(std::move(call), options.asyncOp);
}

// ---- all_to_all. Always the form with counts: a rank can't know whether the others' are even.

Backend::WorkPointer Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                            std::vector<std::int64_t>& output_splits,
                                            std::vector<std::int64_t>& input_splits,
                                            const c10d::AllToAllOptions& options) {
  check_readable(input, "all_to_all");
  check_writable(output, "all_to_all");
  check_same_type(input, output, "all_to_all");
  const auto sends = split_counts(input, input_splits, getSize(), "input");
  const auto receives = split_counts(output, output_splits, getSize(), "output");
  Call call{c10d::OpType::ALLTOALL_BASE, "qccl:all_to_all", {input}, {{output}}};
  call.timeout = options.timeout;
  const at::Tensor target = writable_memory(output, false, call.copies);
  add_all_to_all(apart_from(readable_memory(input), target), sends, target, receives,
                 call_options(options.timeout, options.asyncOp), call);
  return start(std::move(call), options.asyncOp);
}

Backend::WorkPointer Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<std::size_t>(getSize());
  if (outputs.size() != ranks || inputs.size() != ranks) {
    throw_bad_argument("all_to_all", "needs an input and an output for each of " + std::to_string(getSize()) +
                                         " ranks, got " + std::to_string(inputs.size()) + " and " +
                                         std::to_string(outputs.size()));
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    check_readable(inputs[rank], "all_to_all");
    check_writable(outputs[rank], "all_to_all");
    check_same_type(inputs[rank], inputs.front(), "all_to_all");
    check_same_type(inputs[rank], outputs[rank], "all_to_all");
  }
  Call call{c10d::OpType::ALLTOALL, "qccl:all_to_all", inputs, {outputs}};
  call.timeout = options.timeout;
  const Elements elements = elements_of(inputs.front());
  const at::Tensor target = writable_list(outputs, call.copies);
  add_all_to_all(apart_from(readable_list(inputs), target), counts_of(inputs, elements), target,
                 counts_of(outputs, elements), call_options(options.timeout, options.asyncOp), call);
  return start(std::move(call), options.asyncOp);
}

Backend::WorkPointer Backend::barrier(const c10d::BarrierOptions& options) {
  Call call{c10d::OpType::BARRIER, "qccl:barrier"};
  call.timeout = options.timeout;
  call.posts.push_back([library_options = call_options(options.timeout, options.asyncOp)](Communicator& group) {
    return group.barrier_async(library_options);
  });
  return start(std::move(call), options.asyncOp);
}

}  // namespace qccl::torch_binding
