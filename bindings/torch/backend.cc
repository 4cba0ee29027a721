#include "backend.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <utility>

#include "errors.h"

namespace qccl::torch_binding {
namespace {

c10::intrusive_ptr<c10d::Backend::Options> options_of(const GroupRequest& request) {
  auto options = c10::make_intrusive<c10d::Backend::Options>("qccl", request.timeout.value_or(kBackendDefaultTimeout));
  options->group_name = request.name;
  options->global_ranks_in_group.assign(request.global_ranks.begin(), request.global_ranks.end());
  return options;
}

}  // namespace

Backend::Backend(std::shared_ptr<World> world, Communicator group, const GroupRequest& request, bool root)
    : c10d::Backend(request.rank, request.size),
      world_(std::move(world)),
      root_(root),
      options_(options_of(request)),
      group_(std::move(group)),
      order_(std::make_shared<CompletionOrder>(group_.name())),
      compression_(request.compression),
      timeout_(request.timeout) {}

Backend::~Backend() {
  try {
    shutdown();
  } catch (const std::exception&) {
    // The group had failed, and the operations said so.
  }
}

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  const std::lock_guard lock(callback_groups_mutex_);
  timeout_ = timeout;
  with_torch_errors([&] {
    group_.set_timeout(timeout);
    for (auto& [name, group] : callback_groups_) group.set_timeout(timeout);
  });
}

void Backend::set_compression(const Compression& compression) {
  const std::lock_guard lock(callback_groups_mutex_);
  compression_ = compression;
  with_torch_errors([&] {
    group_.set_compression(compression);
    for (auto& [name, group] : callback_groups_) group.set_compression(compression);
  });
}

void Backend::abort() {
  if (root_) world_->retire();
  const std::string reason = "this rank's program aborted the process group";
  for_each_group([&](const Communicator& group) { world_->abort_group(group, reason); });
}

void Backend::shutdown() {
  if (root_) world_->retire();
  for_each_group([&](const Communicator& group) { world_->close_group(group); });
}

void Backend::for_each_group(const std::function<void(const Communicator&)>& action) {
  std::vector<Communicator> groups{group_};
  {
    const std::lock_guard lock(callback_groups_mutex_);
    for (const auto& [name, group] : callback_groups_) groups.push_back(group);
  }
  with_torch_errors([&] { std::for_each(groups.begin(), groups.end(), action); });
}

// The group, or its twin for callbacks of the kind that this thread runs. Ranks make the twin
// together, the first time such a callback starts a collective.
Communicator Backend::group_for_this_thread() {
  const std::string sequence = CompletionOrder::current_sequence();
  if (sequence.empty()) return group_;
  const std::lock_guard lock(callback_groups_mutex_);
  const auto found = callback_groups_.find(sequence);
  if (found != callback_groups_.end()) return found->second;
  Communicator twin = world_->twin(group_, group_.name() + ", callbacks of " + sequence);
  if (compression_) twin.set_compression(*compression_);
  if (timeout_) twin.set_timeout(*timeout_);
  return callback_groups_.emplace(sequence, std::move(twin)).first->second;
}

CallOptions Backend::call_options(std::chrono::milliseconds timeout) const {
  CallOptions options;
  if (timeout != c10d::kUnsetTimeout) options.timeout = timeout;
  return options;
}

Backend::WorkPointer Backend::start(Call call, const std::vector<Post>& posts, bool asynchronous) {
  Communicator group = with_torch_errors([&] { return group_for_this_thread(); });
  // Outlives the lock: dropping the last reference to a Work frees tensors, which may need the
  // interpreter's lock.
  std::vector<c10::intrusive_ptr<CollectiveWork>> held;
  std::vector<c10::intrusive_ptr<CollectiveWork>> unfinished;
  std::unique_lock lock(posting_);
  for (const auto& weak : in_flight_) {
    if (auto work = weak.lock()) held.push_back(std::move(work));
  }
  std::copy_if(held.begin(), held.end(), std::back_inserter(unfinished),
               [](const auto& work) { return !work->has_results(); });
  in_flight_.assign(unfinished.begin(), unfinished.end());
  if (call.type == c10d::OpType::BARRIER) call.earlier = unfinished;

  auto work = c10::make_intrusive<CollectiveWork>(getRank(), std::move(call), order_, world_->pool());
  std::vector<qccl::Work> operations;
  with_torch_errors([&] {
    for (const Post& post : posts) operations.push_back(post(group));
  });
  work->posted(std::move(operations), ++sequence_);
  if (asynchronous) in_flight_.emplace_back(work);
  lock.unlock();

  if (asynchronous) {
    work->complete_from_pool();
  } else {
    work->wait();
  }
  return work;
}

// ---- Reductions ----

Backend::WorkPointer Backend::all_reduce_each(c10d::OpType type, const Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  Call call{type, {}, {}, tensors, {}};
  std::vector<Post> posts;
  for (const at::Tensor& tensor : tensors) {
    check_writable(tensor, "all_reduce");
    CallOptions library_options = call_options(options.timeout);
    const DataType type = reduction_of(tensor, options.reduceOp, "all_reduce", library_options);
    const at::Tensor memory = writable_memory(tensor, true, call.copies);
    call.memory.push_back(memory);
    void* data = memory.mutable_data_ptr();
    posts.push_back([=, count = static_cast<std::size_t>(memory.numel())](Communicator& group) {
      return group.all_reduce_async(data, data, count, type, library_options);
    });
  }
  return start(std::move(call), posts, options.asyncOp);
}

Backend::WorkPointer Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  only(tensors, "all_reduce");
  return all_reduce_each(c10d::OpType::ALLREDUCE, tensors, options);
}

Backend::WorkPointer Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return all_reduce_each(c10d::OpType::ALLREDUCE_COALESCED, tensors, options);
}

Backend::Post Backend::scatter_post(const at::Tensor& output, const at::Tensor& input, const CallOptions& options,
                                    const c10d::ReduceOp& op, Call& call) const {
  CallOptions library_options = options;
  const DataType type = reduction_of(output, op, "reduce_scatter", library_options);
  const at::Tensor target = writable_memory(output, false, call.copies);
  const std::size_t offset = static_cast<std::size_t>(getRank()) * target.nbytes();
  at::Tensor source = input.detach().contiguous();
  if (target.const_data_ptr() != static_cast<const char*>(source.const_data_ptr()) + offset) {
    source = without_overlap(source, target, 0);
  }
  call.memory.insert(call.memory.end(), {source, target});
  return [=, from = source.const_data_ptr(), to = target.mutable_data_ptr(),
          count = static_cast<std::size_t>(target.numel())](Communicator& group) {
    return group.reduce_scatter_async(from, to, count, type, library_options);
  };
}

Backend::WorkPointer Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                             const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = only(outputs, "reduce_scatter");
  if (inputs.size() != 1) throw_bad_argument("reduce_scatter", "takes one list of inputs a rank");
  check_writable(output, "reduce_scatter");
  check_list(inputs.front(), output, "reduce_scatter");
  Call call{c10d::OpType::REDUCE_SCATTER, {}, {}, {output}, {}};
  at::Tensor flat = as_consecutive(inputs.front());
  if (!flat.defined()) {
    Tensors parts;
    for (const at::Tensor& part : inputs.front()) parts.push_back(part.detach().reshape(-1));
    flat = at::cat(parts);
  }
  const Post post = scatter_post(output, flat, call_options(options.timeout), options.reduceOp, call);
  return start(std::move(call), {post}, options.asyncOp);
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
  Call call{c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED, {}, {}, outputs, {}};
  std::vector<Post> posts;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_writable(outputs[i], "reduce_scatter");
    check_parts(inputs[i], outputs[i], "reduce_scatter");
    posts.push_back(scatter_post(outputs[i], inputs[i], call_options(options.timeout), options.reduceOp, call));
  }
  return start(std::move(call), posts, options.asyncOp);
}

// ---- Data movement ----

Backend::WorkPointer Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = only(tensors, "broadcast");
  const bool root = options.rootRank == getRank();
  if (root) {
    check_readable(tensor, "broadcast");
  } else {
    check_writable(tensor, "broadcast");
  }
  Call call{c10d::OpType::BROADCAST, {}, {}, {tensor}, {}};
  const at::Tensor memory = root ? tensor.detach().contiguous() : writable_memory(tensor, false, call.copies);
  call.memory.push_back(memory);
  const Elements elements = elements_of(memory);
  CallOptions library_options = call_options(options.timeout);
  library_options.root = static_cast<int>(options.rootRank);
  void* data = memory.data_ptr();
  const Post post = [=](Communicator& group) {
    return group.broadcast_async(data, elements.count, elements.type, library_options);
  };
  return start(std::move(call), {post}, options.asyncOp);
}

Backend::Post Backend::gather_post(const at::Tensor& output, const at::Tensor& input, const CallOptions& options,
                                   Call& call) const {
  const at::Tensor target = writable_memory(output, false, call.copies);
  const at::Tensor contiguous = input.detach().contiguous();
  const at::Tensor source =
      without_overlap(contiguous, target, static_cast<std::size_t>(getRank()) * contiguous.nbytes());
  call.memory.insert(call.memory.end(), {source, target});
  return [=, from = source.const_data_ptr(), to = target.mutable_data_ptr(), elements = elements_of(source)](
             Communicator& group) { return group.all_gather_async(from, to, elements.count, elements.type, options); };
}

Backend::WorkPointer Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) {
  const at::Tensor& input = only(inputs, "all_gather");
  if (outputs.size() != 1) throw_bad_argument("all_gather", "takes one list of outputs a rank");
  const Tensors& list = outputs.front();
  check_readable(input, "all_gather");
  check_list(list, input, "all_gather");
  for (const at::Tensor& output : list) check_writable(output, "all_gather");

  Call call{c10d::OpType::ALLGATHER, {}, {}, list, {}};
  at::Tensor flat = as_consecutive(list);
  if (!flat.defined()) {
    flat = at::empty({getSize() * input.numel()}, input.options().requires_grad(false));
    const std::vector<at::Tensor> parts = flat.chunk(getSize());
    for (std::size_t i = 0; i < list.size() && input.numel() > 0; ++i) {
      call.copies.push_back({parts[i].view(list[i].sizes()), list[i]});
    }
  }
  const Post post = gather_post(flat, input, call_options(options.timeout), call);
  return start(std::move(call), {post}, options.asyncOp);
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
  Call call{c10d::OpType::_ALLGATHER_BASE, {}, {}, outputs, {}};
  std::vector<Post> posts;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_writable(outputs[i], "all_gather");
    check_parts(outputs[i], inputs[i], "all_gather");
    posts.push_back(gather_post(outputs[i], inputs[i], call_options(options.timeout), call));
  }
  return start(std::move(call), posts, options.asyncOp);
}

Backend::WorkPointer Backend::barrier(const c10d::BarrierOptions& options) {
  const Post post = [library_options = call_options(options.timeout)](Communicator& group) {
    return group.barrier_async(library_options);
  };
  return start(Call{c10d::OpType::BARRIER, {}, {}, {}, {}}, {post}, options.asyncOp);
}

// `whole` is `part` of every rank.
void Backend::check_parts(const at::Tensor& whole, const at::Tensor& part, const char* operation) const {
  check_readable(whole, operation);
  check_readable(part, operation);
  check_same_type(whole, part, operation);
  if (whole.numel() == part.numel() * getSize()) return;
  throw_bad_argument(operation, "the larger tensor must have " + std::to_string(getSize()) + " x " +
                                    std::to_string(part.numel()) + " elements, it has " +
                                    std::to_string(whole.numel()));
}

// `list` has one tensor like `part` for every rank.
void Backend::check_list(const Tensors& list, const at::Tensor& part, const char* operation) const {
  if (list.size() != static_cast<std::size_t>(getSize())) {
    throw_bad_argument(operation, "the list must have one tensor for each of " + std::to_string(getSize()) +
                                      " ranks, it has " + std::to_string(list.size()));
  }
  for (const at::Tensor& tensor : list) {
    check_readable(tensor, operation);
    check_same_type(tensor, part, operation);
    if (tensor.numel() == part.numel()) continue;
    throw_bad_argument(operation, "all tensors of the list must have " + std::to_string(part.numel()) +
                                      " elements, one has " + std::to_string(tensor.numel()) +
                                      " (uneven lists are not supported by the qccl backend yet)");
  }
}

// ---- Not there yet ----

Backend::WorkPointer Backend::allreduce_sparse(Tensors&, const c10d::AllreduceOptions&) {
  throw_not_supported("all_reduce of sparse tensors");
}
Backend::WorkPointer Backend::reduce(Tensors&, const c10d::ReduceOptions&) { throw_not_supported("reduce"); }
Backend::WorkPointer Backend::allgather_coalesced(std::vector<Tensors>&, Tensors&, const c10d::AllgatherOptions&) {
  throw_not_supported("all_gather_coalesced");
}
Backend::WorkPointer Backend::gather(std::vector<Tensors>&, Tensors&, const c10d::GatherOptions&) {
  throw_not_supported("gather");
}
Backend::WorkPointer Backend::scatter(Tensors&, std::vector<Tensors>&, const c10d::ScatterOptions&) {
  throw_not_supported("scatter");
}
Backend::WorkPointer Backend::alltoall_base(at::Tensor&, at::Tensor&, std::vector<std::int64_t>&,
                                            std::vector<std::int64_t>&, const c10d::AllToAllOptions&) {
  throw_not_supported("all_to_all_single");
}
Backend::WorkPointer Backend::alltoall(Tensors&, Tensors&, const c10d::AllToAllOptions&) {
  throw_not_supported("all_to_all");
}
Backend::WorkPointer Backend::send(Tensors&, int, int) { throw_not_supported("send"); }
Backend::WorkPointer Backend::recv(Tensors&, int, int) { throw_not_supported("recv"); }
Backend::WorkPointer Backend::recvAnysource(Tensors&, int) { throw_not_supported("recv from any source"); }

}  // namespace qccl::torch_binding
