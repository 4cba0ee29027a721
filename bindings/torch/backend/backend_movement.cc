// The part of Backend that moves elements without adding them.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
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
    require(rows % world == 0, "all_to_all", "without split sizes ", world, " must divide the ", which,
            "'s first dimension, which is ", rows);
    rows_of.assign(ranks, rows / world);
  }
  const std::int64_t sum = std::accumulate(rows_of.begin(), rows_of.end(), std::int64_t{0});
  const bool negative = std::any_of(rows_of.begin(), rows_of.end(), [](std::int64_t split) { return split < 0; });
  require(rows_of.size() == ranks && sum == rows && !negative, "all_to_all", "the ", which, " split sizes must be ",
          world, " numbers that add up to its first dimension, ", rows);
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

void add_all_to_all(const Exchanged& exchanged, TorchCall& call) {
  const at::Tensor target = call.memory.write(exchanged.outputs);  // before read(): the call never works in place
  const at::Tensor source = call.memory.read(exchanged.inputs);
  call.posts.push_back([sends = exchanged.sends, receives = exchanged.receives, from = source.const_data_ptr(),
                        to = target.mutable_data_ptr(), type = elements_of(source).type,
                        options = call.options](Communicator& group) {
    return group.all_to_all_v_async(from, sends, to, receives, type, options);
  });
}

// Gathers all inputs of a rank as one buffer. The outputs are one of each rank, or one tensor of all of them.
// `compression`: of tensors of at least kLeastBytes; smaller ones are lengths and flags.
void add_all_gather(const c10d::Backend& group, const Backend::Tensors& outputs, const Backend::Tensors& inputs,
                    const std::optional<Compression>& compression, TorchCall& call) {
  constexpr std::size_t kLeastBytes = 64 * 1024;
  const Elements elements = elements_of(inputs.front());
  CallOptions options = call.options;
  if (is_compressible(elements.type) && inputs.front().nbytes() >= kLeastBytes) options.compression = compression;
  const std::vector<std::size_t> counts = uneven_counts(outputs, elements);
  const auto memory = call.memory.read_and_write(inputs, outputs, bytes_before_own(group, outputs));
  CollectiveCall gather = call_on(Collective::all_gather, memory, memory.source, elements, std::move(options));
  if (!counts.empty()) gather.counts = counts;
  call.post(std::move(gather));
}

// Gathers each rank's input into its output of the list.
void add_list_all_gather(const c10d::Backend& group, const Backend::Tensors& outputs, const at::Tensor& input,
                         const std::optional<Compression>& compression, TorchCall& call) {
  check_readable(input, "all_gather");
  check_list(group, outputs, input, "all_gather");
  for (const at::Tensor& output : outputs) check_writable(output, "all_gather");
  add_all_gather(group, outputs, {input}, compression, call);
}

// All lists become the same: the inputs of rank 0, then those of rank 1, and so on.
void add_all_gather_of_several(const c10d::Backend& group, const Backend::TensorLists& outputs,
                               const Backend::Tensors& inputs, const std::optional<Compression>& compression,
                               TorchCall& call) {
  const std::size_t total = inputs.size() * static_cast<std::size_t>(group.getSize());
  for (const Backend::Tensors& list : outputs) {
    require(list.size() == total, "all_gather", "with ", inputs.size(), " inputs a rank each list must have ", total,
            " tensors, one has ", list.size());
    for (const at::Tensor& output : list) {
      check_writable(output, "all_gather");
      check_like(output, inputs.front(), "all_gather");
    }
  }
  const std::int64_t count = static_cast<std::int64_t>(total) * inputs.front().numel();
  const at::Tensor gathered = at::empty({count}, inputs.front().options().requires_grad(false));
  add_all_gather(group, {gathered}, inputs, compression, call);
  for (const Backend::Tensors& list : outputs) call.memory.copy_back(gathered, list);
}

// Gathers the inputs into the list of outputs, which only the root has.
void add_gather(const c10d::Backend& group, const Backend::TensorLists& outputs, const Backend::Tensors& inputs,
                TorchCall& call) {
  CallMemory::Pair memory;
  if (outputs.empty()) {
    memory.source = call.memory.read(inputs);
  } else {
    memory = call.memory.read_and_write(inputs, outputs.front(), bytes_before_own(group, outputs.front()));
  }
  call.post(call_on(Collective::gather, memory, memory.source, elements_of(memory.source), call.options));
}

}  // namespace

Backend::WorkPointer Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  check_alike(tensors, "broadcast");
  require(options.rootTensor >= 0 && options.rootTensor < static_cast<std::int64_t>(tensors.size()), "broadcast",
          "the root tensor must be one of ", tensors.size(), ", it is number ", options.rootTensor);
  const bool root = options.rootRank == getRank();
  // The root must refuse the same tensors as the other ranks: a call that only some ranks make loses the group.
  for (const at::Tensor& tensor : tensors) check_writable(tensor, "broadcast");
  TorchCall call = make_call(c10d::OpType::BROADCAST, "qccl:broadcast", tensors, {tensors}, options);
  const at::Tensor& sent = tensors[static_cast<std::size_t>(options.rootTensor)];
  at::Tensor memory;
  if (tensors.size() > 1) {
    memory = call.memory.stage(sent, tensors);
  } else {
    memory = root ? call.memory.read(tensors) : call.memory.write(tensors);
  }
  call.options.root = static_cast<int>(options.rootRank);
  call.post(call_on(Collective::broadcast, {{}, memory}, memory, elements_of(memory), call.options));
  return start(std::move(call));
}

// ---- all_gather

Backend::WorkPointer Backend::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  require(outputs.size() == inputs.size(), "all_gather", "needs a list of outputs for each input, got ", outputs.size(),
          " for ", inputs.size());
  check_alike(inputs, "all_gather");
  TorchCall call = make_call(c10d::OpType::ALLGATHER, "qccl:all_gather", inputs, outputs, options);
  const auto& compression = options_->settings.all_gather_compression;
  if (inputs.size() == 1) {
    add_list_all_gather(*this, outputs.front(), inputs.front(), compression, call);
  } else {
    add_all_gather_of_several(*this, outputs, inputs, compression, call);
  }
  return start(std::move(call));
}

// `outputs[rank]` is the list of that rank's inputs.
Backend::WorkPointer Backend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  require(outputs.size() == static_cast<std::size_t>(getSize()), "all_gather_coalesced",
          "needs a list of outputs for each of ", getSize(), " ranks, got ", outputs.size());
  TorchCall call = make_call(c10d::OpType::ALLGATHER_COALESCED, "qccl:all_gather", inputs, outputs, options);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) {
      require(of_rank.size() == inputs.size(), "all_gather_coalesced", "each list must have ", inputs.size(),
              " tensors, one has ", of_rank.size());
      list.push_back(of_rank[i]);
    }
    add_list_all_gather(*this, list, inputs[i], options_->settings.all_gather_compression, call);
  }
  return start(std::move(call));
}

Backend::WorkPointer Backend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::AllgatherOptions& options) {
  Tensors outputs{output};
  Tensors inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

Backend::WorkPointer Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& options) {
  require(outputs.size() == inputs.size(), "all_gather", "needs as many inputs as outputs");
  TorchCall call = make_call(c10d::OpType::_ALLGATHER_BASE, "qccl:_all_gather_base", inputs, {outputs}, options);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_writable(outputs[i], "all_gather");
    check_parts(*this, outputs[i], inputs[i], "all_gather");
    add_all_gather(*this, {outputs[i]}, {inputs[i]}, options_->settings.all_gather_compression, call);
  }
  return start(std::move(call));
}

// ---- gather and scatter

Backend::WorkPointer Backend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  const at::Tensor& input = only(inputs, "gather");
  const bool root = options.rootRank == getRank();
  check_readable(input, "gather");
  require(outputs.size() == (root ? 1U : 0U), "gather", "takes a list of outputs on the root, and none elsewhere");
  TorchCall call = make_call(c10d::OpType::GATHER, "qccl:gather", inputs, outputs, options);
  call.options.root = static_cast<int>(options.rootRank);
  if (root) {
    check_even_list(*this, outputs.front(), input, "gather");
    for (const at::Tensor& output : outputs.front()) check_writable(output, "gather");
  }
  add_gather(*this, outputs, inputs, call);
  return start(std::move(call));
}

Backend::WorkPointer Backend::gather_into_tensor(at::Tensor& output, at::Tensor& input,
                                                 const c10d::GatherOptions& options) {
  check_readable(input, "gather");
  Tensors inputs{input};
  TensorLists outputs;
  if (options.rootRank == getRank()) {
    check_writable(output, "gather");
    check_parts(*this, output, input, "gather");
    outputs = {{output}};
  }
  TorchCall call = make_call(c10d::OpType::GATHER, "qccl:gather", inputs, outputs, options);
  call.options.root = static_cast<int>(options.rootRank);
  add_gather(*this, outputs, inputs, call);
  return start(std::move(call));
}

Backend::WorkPointer Backend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) {
  const at::Tensor& output = only(outputs, "scatter");
  const bool root = options.rootRank == getRank();
  check_writable(output, "scatter");
  require(inputs.size() == (root ? 1U : 0U), "scatter", "takes a list of inputs on the root, and none elsewhere");
  TorchCall call =
      make_call(c10d::OpType::SCATTER, "qccl:scatter", root ? inputs.front() : Tensors{}, {outputs}, options);
  CallMemory::Pair memory;
  if (root) {
    check_even_list(*this, inputs.front(), output, "scatter");
    memory = call.memory.read_and_write(inputs.front(), outputs, bytes_before_own(*this, inputs.front()));
  } else {
    memory.target = call.memory.write(outputs);
  }
  call.options.root = static_cast<int>(options.rootRank);
  call.post(call_on(Collective::scatter, memory, memory.target, elements_of(output), call.options));
  return start(std::move(call));
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
  TorchCall call = make_call(c10d::OpType::ALLTOALL_BASE, "qccl:all_to_all", {input}, {{output}}, options);
  add_all_to_all(exchanged, call);
  return start(std::move(call));
}

Backend::WorkPointer Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  const auto ranks = static_cast<std::size_t>(getSize());
  require(outputs.size() == ranks && inputs.size() == ranks, "all_to_all", "needs an input and an output for each of ",
          ranks, " ranks, got ", inputs.size(), " and ", outputs.size());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    check_readable(inputs[rank], "all_to_all");
    check_writable(outputs[rank], "all_to_all");
    check_same_type(inputs[rank], inputs.front(), "all_to_all");
    check_same_type(inputs[rank], outputs[rank], "all_to_all");
  }
  TorchCall call = make_call(c10d::OpType::ALLTOALL, "qccl:all_to_all", inputs, {outputs}, options);
  const Elements elements = elements_of(inputs.front());
  add_all_to_all({inputs, counts_of(inputs, elements), outputs, counts_of(outputs, elements)}, call);
  return start(std::move(call));
}

Backend::WorkPointer Backend::barrier(const c10d::BarrierOptions& options) {
  TorchCall call = make_call(c10d::OpType::BARRIER, "qccl:barrier", {}, {}, options);
  call.posts.push_back([own = call.options](Communicator& group) { return group.barrier_async(own); });
  return start(std::move(call));
}

}  // namespace qccl::torch_binding
