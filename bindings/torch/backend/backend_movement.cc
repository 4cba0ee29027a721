// The part of Backend that moves elements without adding them.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "backend/backend.h"

namespace qccl::torch_binding {
namespace {

// The element count for each rank of a tensor split along its first dimension: as in `splits`, or evenly without them.
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

struct Exchanged {
  Backend::Tensors inputs;
  std::vector<std::size_t> sends;
  Backend::Tensors outputs;
  std::vector<std::size_t> receives;
};

void add_all_to_all(const Exchanged& exchanged, const CallOptions& options, Call& call) {
  const at::Tensor target = call.memory.write(exchanged.outputs);  // before read(): the call never works in place
  const at::Tensor source = call.memory.read(exchanged.inputs);
  call.posts.push_back([=, sends = exchanged.sends, receives = exchanged.receives, from = source.const_data_ptr(),
                        to = target.mutable_data_ptr(), type = elements_of(source).type](Communicator& group) {
    return group.all_to_all_v_async(from, sends, to, receives, type, options);
  });
}

std::size_t bytes_before(const Backend::Tensors& list, int rank) {
  return std::accumulate(list.begin(), list.begin() + rank, std::size_t{0},
                         [](std::size_t sum, const at::Tensor& tensor) { return sum + tensor.nbytes(); });
}

}  // namespace

Backend::WorkPointer Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  check_alike(tensors, "broadcast");
  if (options.rootTensor < 0 || options.rootTensor >= static_cast<std::int64_t>(tensors.size())) {
    throw_bad_argument("broadcast", "the root tensor must be one of " + std::to_string(tensors.size()) +
                                        ", it is number " + std::to_string(options.rootTensor));
  }
  const bool root = options.rootRank == getRank();
  // The root must refuse the same tensors as the other ranks: a call that only some ranks make loses the group.
  for (const at::Tensor& tensor : tensors) check_writable(tensor, "broadcast");
  Call call{c10d::OpType::BROADCAST, "qccl:broadcast", tensors, {tensors}, options.timeout};
  const at::Tensor& sent = tensors[static_cast<std::size_t>(options.rootTensor)];
  at::Tensor memory;
  if (tensors.size() > 1) {
    memory = call.memory.stage(sent, tensors);
  } else {
    memory = root ? call.memory.read(tensors) : call.memory.write(tensors);
  }
  const Elements elements = elements_of(memory);
  CallOptions library_options = call_options(options.timeout, options.asyncOp);
  library_options.root = static_cast<int>(options.rootRank);
  call.posts.push_back([=, data = memory.data_ptr(), count = elements.count_in(memory)](Communicator& group) {
    return group.broadcast_async(data, count, elements.type, library_options);
  });
  return start(std::move(call), options.asyncOp);
}

// ---- all_gather

void Backend::add_all_gather(const Tensors& outputs, const Tensors& inputs, const CallOptions& options,
                             Call& call) const {
  const std::size_t bytes = bytes_before(inputs, static_cast<int>(inputs.size()));
  const auto [source, target] =
      call.memory.read_and_write(inputs, outputs, static_cast<std::size_t>(getRank()) * bytes);
  const Elements elements = elements_of(source);
  call.posts.push_back([=, from = source.const_data_ptr(), to = target.mutable_data_ptr(),
                        count = elements.count_in(source)](Communicator& group) {
    return group.all_gather_async(from, to, count, elements.type, options);
  });
}

void Backend::add_list_all_gather(const Tensors& outputs, const at::Tensor& input, const CallOptions& options,
                                  Call& call) const {
  check_readable(input, "all_gather");
  check_list(outputs, input, "all_gather");
  for (const at::Tensor& output : outputs) check_writable(output, "all_gather");
  const Elements elements = elements_of(input);
  std::vector<std::size_t> counts = counts_of(outputs, elements);
  if (all_equal(counts)) return add_all_gather(outputs, {input}, options, call);
  const auto [source, target] = call.memory.read_and_write({input}, outputs, bytes_before(outputs, getRank()));
  call.posts.push_back([=, from = source.const_data_ptr(), to = target.mutable_data_ptr(),
                        counts = std::move(counts)](Communicator& group) {
    return group.all_gather_v_async(from, to, counts, elements.type, options);
  });
}

Backend::WorkPointer Backend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  if (outputs.size() != inputs.size()) {
    throw_bad_argument("all_gather", "needs a list of outputs for each input, got " + std::to_string(outputs.size()) +
                                         " for " + std::to_string(inputs.size()));
  }
  check_alike(inputs, "all_gather");
  Call call{c10d::OpType::ALLGATHER, "qccl:all_gather", inputs, outputs, options.timeout};
  const CallOptions library_options = all_gather_options(inputs.front(), options);
  if (inputs.size() == 1) {
    add_list_all_gather(outputs.front(), inputs.front(), library_options, call);
  } else {
    add_all_gather_of_several(outputs, inputs, library_options, call);
  }
  return start(std::move(call), options.asyncOp);
}

// All lists become the same: the inputs of rank 0, then those of rank 1, and so on.
void Backend::add_all_gather_of_several(const TensorLists& outputs, const Tensors& inputs, const CallOptions& options,
                                        Call& call) const {
  const std::size_t total = inputs.size() * static_cast<std::size_t>(getSize());
  for (const Tensors& list : outputs) {
    if (list.size() != total) {
      throw_bad_argument("all_gather", "with " + std::to_string(inputs.size()) + " inputs a rank each list must have " +
                                           std::to_string(total) + " tensors, one has " + std::to_string(list.size()));
    }
    for (const at::Tensor& output : list) {
      check_writable(output, "all_gather");
      check_like(output, inputs.front(), "all_gather");
    }
  }
  const std::int64_t count = static_cast<std::int64_t>(total) * inputs.front().numel();
  const at::Tensor gathered = at::empty({count}, inputs.front().options().requires_grad(false));
  add_all_gather({gathered}, inputs, options, call);
  for (const Tensors& list : outputs) call.memory.copy_back(gathered, list);
}

// `outputs[rank]` is the list of that rank's inputs.
Backend::WorkPointer Backend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  if (outputs.size() != static_cast<std::size_t>(getSize())) {
    throw_bad_argument("all_gather_coalesced", "needs a list of outputs for each of " + std::to_string(getSize()) +
                                                   " ranks, got " + std::to_string(outputs.size()));
  }
  Call call{c10d::OpType::ALLGATHER_COALESCED, "qccl:all_gather", inputs, outputs, options.timeout};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      if (of_rank.size() != inputs.size()) {
        throw_bad_argument("all_gather_coalesced", "each list must have " + std::to_string(inputs.size()) +
                                                       " tensors, one has " + std::to_string(of_rank.size()));
      }
      list.push_back(of_rank[i]);
    }
    add_list_all_gather(list, inputs[i], all_gather_options(inputs[i], options), call);
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
  Call call{c10d::OpType::_ALLGATHER_BASE, "qccl:_all_gather_base", inputs, {outputs}, options.timeout};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_writable(outputs[i], "all_gather");
    check_parts(outputs[i], inputs[i], "all_gather");
    add_all_gather({outputs[i]}, {inputs[i]}, all_gather_options(inputs[i], options), call);
  }
  return start(std::move(call), options.asyncOp);
}

// ---- gather and scatter

Backend::WorkPointer Backend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs, "gather");
  const bool root = options.rootRank == getRank();
  check_readable(input, "gather");
  if (outputs.size() != (root ? 1U : 0U)) {
    throw_bad_argument("gather", "takes a list of outputs on the root, and none elsewhere");
  }
  Call call{c10d::OpType::GATHER, "qccl:gather", inputs, outputs, options.timeout};
  CallMemory::Pair memory;
  if (root) {
    check_even_list(outputs.front(), input, "gather");
    for (const at::Tensor& output : outputs.front()) check_writable(output, "gather");
    memory = call.memory.read_and_write(inputs, outputs.front(), bytes_before(outputs.front(), getRank()));
  } else {
    memory.source = call.memory.read(inputs);
  }
  const Elements elements = elements_of(input);
  CallOptions library_options = call_options(options.timeout, options.asyncOp);
  library_options.root = static_cast<int>(options.rootRank);
  call.posts.push_back([=, from = memory.source.const_data_ptr(),
                        to = root ? memory.target.mutable_data_ptr() : nullptr,
                        count = elements.count_in(memory.source)](Communicator& group) {
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
  Call call{c10d::OpType::SCATTER, "qccl:scatter", root ? inputs.front() : Tensors{}, {outputs}, options.timeout};
  CallMemory::Pair memory;
  if (root) {
    check_even_list(inputs.front(), output, "scatter");
    memory = call.memory.read_and_write(inputs.front(), outputs, bytes_before(inputs.front(), getRank()));
  } else {
    memory.target = call.memory.write(outputs);
  }
  const Elements elements = elements_of(output);
  CallOptions library_options = call_options(options.timeout, options.asyncOp);
  library_options.root = static_cast<int>(options.rootRank);
  call.posts.push_back([=, from = root ? memory.source.const_data_ptr() : nullptr,
                        to = memory.target.mutable_data_ptr(),
                        count = elements.count_in(memory.target)](Communicator& group) {
    return group.scatter_async(from, to, count, elements.type, library_options);
  });
  return start(std::move(call), options.asyncOp);
}

// ---- all_to_all. Always uses the form with counts: a rank can't know whether its peers' splits are even.

Backend::WorkPointer Backend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                            std::vector<std::int64_t>& output_splits,
                                            std::vector<std::int64_t>& input_splits,
                                            const c10d::AllToAllOptions& options) {
  check_readable(input, "all_to_all");
  check_writable(output, "all_to_all");
  check_same_type(input, output, "all_to_all");
  const Exchanged exchanged{.inputs = {input},
                            .sends = split_counts(input, input_splits, getSize(), "input"),
                            .outputs = {output},
                            .receives = split_counts(output, output_splits, getSize(), "output")};
  Call call{c10d::OpType::ALLTOALL_BASE, "qccl:all_to_all", {input}, {{output}}, options.timeout};
  add_all_to_all(exchanged, call_options(options.timeout, options.asyncOp), call);
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
  Call call{c10d::OpType::ALLTOALL, "qccl:all_to_all", inputs, {outputs}, options.timeout};
  const Elements elements = elements_of(inputs.front());
  add_all_to_all({inputs, counts_of(inputs, elements), outputs, counts_of(outputs, elements)},
                 call_options(options.timeout, options.asyncOp), call);
  return start(std::move(call), options.asyncOp);
}

Backend::WorkPointer Backend::barrier(const c10d::BarrierOptions& options) {
  Call call{c10d::OpType::BARRIER, "qccl:barrier", {}, {}, options.timeout};
  call.posts.push_back([library_options = call_options(options.timeout, options.asyncOp)](Communicator& group) {
    return group.barrier_async(library_options);
  });
  return start(std::move(call), options.asyncOp);
}

}  // namespace qccl::torch_binding
