// The part of Backend that sends messages from one rank to another, and calls that consist of messages with tags that
// users may not take, because their numbers have no place in the group's order of collectives: torch's monitored
// barrier and sums of sparse tensors.
#include <ATen/Functions.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "qccl/sparse.h"

namespace qccl::torch_binding {
namespace {

// The group's compression, else the job's, is for floating point tensors of at least kLeastBytes; smaller ones are
// lengths and flags. Both ranks know type and size.
std::optional<Compression> group_compression(const GroupSettings& settings, const SharedJob& job,
                                             const at::Tensor& tensor) {
  constexpr std::size_t kLeastBytes = 64 * 1024;
  if (!is_compressible(elements_of(tensor).type) || tensor.nbytes() < kLeastBytes) return std::nullopt;
  return settings.message_compression ? settings.message_compression : job.message_compression();
}

MessageOptions message_options(const char* operation, int tag, const TorchCall& call) {
  require(tag >= 0 && tag < Backend::kReservedTags, operation, "the tag must be from 0 to ", Backend::kReservedTags - 1,
          ", it is ", tag);
  return {.tag = tag, .log_name = log_caller(), .stream = call.options.stream};
}

// ---- The monitored barrier

[[noreturn]] void fail(const Communicator& group, const std::string& message) {
  throw Error({.kind = ErrorKind::deadline_exceeded,
               .message = message,
               .rank = group.rank(),
               .operation = "monitored_barrier"});
}

// Waits for an operation and returns its error, or nothing if it succeeded.
std::optional<ErrorInfo> failure_of(const Work& work) {
  try {
    work.wait();
    return std::nullopt;
  } catch (const Error& error) {
    return error.info();
  }
}

std::string in_time(std::optional<std::chrono::milliseconds> timeout) {
  return timeout ? " in " + std::to_string(timeout->count()) + " ms" : "";
}

void hear_all_and_answer(Communicator& group, const MessageOptions& options, bool wait_all_ranks) {
  std::vector<char> words(static_cast<std::size_t>(group.size()));
  std::vector<Work> heard;
  for (int rank = 1; rank < group.size(); ++rank) {
    heard.push_back(group.recv_async(&words[static_cast<std::size_t>(rank)], 1, DataType::uint8, rank, options));
  }
  std::string missing;
  std::string cause;
  for (int rank = 1; rank < group.size(); ++rank) {
    const auto failure = failure_of(heard[static_cast<std::size_t>(rank - 1)]);
    if (!failure || (!wait_all_ranks && !missing.empty())) continue;
    if (missing.empty()) cause = failure->message;
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (!missing.empty()) {
    fail(group, (wait_all_ranks ? "Ranks " : "Rank ") + missing + " failed to pass monitoredBarrier" +
                    in_time(options.timeout) + ". " + cause);
  }
  std::vector<Work> answers;
  for (int rank = 1; rank < group.size(); ++rank) {
    answers.push_back(group.send_async(&words[0], 1, DataType::uint8, rank, options));
  }
  for (const Work& answer : answers) answer.wait();
}

void report_and_hear(Communicator& group, const MessageOptions& options) {
  const char word = 0;
  char answer = 0;
  const Work reported = group.send_async(&word, 1, DataType::uint8, 0, options);
  const Work answered = group.recv_async(&answer, 1, DataType::uint8, 0, options);
  auto failure = failure_of(reported);
  const auto second = failure_of(answered);
  if (!failure) failure = second;
  if (!failure) return;
  fail(group, "Rank " + std::to_string(group.rank()) +
                  " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank "
                  "0. Rank 0's error says which rank is missing. " +
                  failure->message);
}

// Rank 0 receives from every rank and answers all of them, or names the missing ranks, worded as in torch's other
// backends. Collective over the group. Every rank passes the same `tag`, which no other message uses.
// Throws Error(deadline_exceeded). On rank 0 it names the first rank that did not arrive in time, or, with
// `wait_all_ranks`, all of them; on the other ranks it says that rank 0 did not answer. The group is then lost, as
// after every missed deadline, except with a timeout of 0. Without a timeout, the group's timeout applies.
void monitored_barrier(Communicator& group, int tag, std::optional<std::chrono::milliseconds> timeout,
                       bool wait_all_ranks) {
  if (timeout && timeout->count() <= 0) {
    fail(group, "Rank " + std::to_string(group.rank()) + " timed out in monitoredBarrier" + in_time(timeout));
  }
  const MessageOptions options{.tag = tag, .timeout = timeout};
  group.rank() == 0 ? hear_all_and_answer(group, options, wait_all_ranks) : report_and_hear(group, options);
}

// ---- Sums of sparse tensors

struct Exchange {
  SparseReduction reduction;
  std::optional<std::chrono::milliseconds> timeout;
  SparseSum sum;
  std::optional<c10::Stream> stream;  // the program's, if the tensor is on a device
};

void check_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const char* const operation = "all_reduce of a sparse tensor";
  require(tensor.layout() == at::kSparse, operation, "the layout must be torch.sparse_coo");
  require(tensor.device().is_cpu() || is_served(tensor.device()), operation,
          "the tensor must be on the CPU or a CUDA device, it is on ", tensor.device());
  const bool is_float = at::isFloatingType(tensor.scalar_type()) || tensor.is_complex();
  const bool is_average = op.op_ == c10d::ReduceOp::AVG || op.op_ == c10d::ReduceOp::PREMUL_SUM;
  require(op.op_ == c10d::ReduceOp::SUM || is_average, operation, "only SUM, AVG and PREMUL_SUM exist");
  require(is_float || !is_average, operation, "AVG and PREMUL_SUM are for floating point types");
}

// Complex numbers become pairs, in one more dense dimension.
SparseSum sum_of(const SparseReduction& reduction, const CallOptions& options) {
  const at::Tensor whole = reduction.tensor.detach();
  CallOptions checked = options;
  const Elements elements = reduction_of(whole, reduction.op, "all_reduce of a sparse tensor", checked);
  const at::Tensor indices = whole._indices().cpu().contiguous();
  const at::Tensor values = whole._values().cpu().contiguous();
  const auto sparse_dim = static_cast<std::size_t>(whole.sparse_dim());
  SparseView view{.type = elements.type,
                  .indices = {indices.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(indices.numel())},
                  .values = values.const_data_ptr()};
  view.sparse_sizes = whole.sizes().slice(0, sparse_dim).vec();
  view.dense_sizes = whole.sizes().slice(sparse_dim).vec();
  if (elements.parts > 1) view.dense_sizes.push_back(static_cast<std::int64_t>(elements.parts));
  return with_torch_errors([&] {
    return SparseSum(view, reduction.rank, reduction.world, {.op = checked.op, .premul_factor = checked.premul_factor});
  });
}

// May only call the library: a library call that fails ends the group.
qccl::Work post_messages(Exchange& exchange, Communicator& group) {
  const MessageOptions options{.tag = exchange.reduction.tag, .timeout = exchange.timeout};
  const SparseSum::Part own = exchange.sum.part(exchange.reduction.rank);
  group.group_start();
  for (int rank = 0; rank < exchange.reduction.world; ++rank) {
    if (rank == exchange.reduction.rank) continue;
    const SparseSum::Part part = exchange.sum.part(rank);
    for (const auto& [mine, theirs] : {std::pair{own.places, part.places}, {own.values, part.values}}) {
      if (!mine.empty()) group.send_async(mine.data(), mine.size(), DataType::uint8, rank, options);
      if (!theirs.empty()) group.recv_async(theirs.data(), theirs.size(), DataType::uint8, rank, options);
    }
  }
  return group.group_end();
}

std::optional<c10::Stream> current_stream(const at::Tensor& tensor) {
  if (tensor.device().is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
}

// A device takes memory for the sum, and copies it, in the call's stream: torch gives freed memory, which that stream
// may still read, to nothing else.
void finish_reduction(Exchange& exchange) {
  const at::Tensor& tensor = exchange.reduction.tensor;
  const WriteGuard guard(tensor);
  SparseTensor sum = with_torch_errors([&] { return exchange.sum.finish(); });
  const auto elements = static_cast<std::int64_t>(sum.elements());
  std::vector<std::int64_t> size{elements};
  const auto dense = tensor.sizes().slice(static_cast<std::size_t>(tensor.sparse_dim()));
  size.insert(size.end(), dense.begin(), dense.end());
  const at::Tensor indices = at::from_blob(sum.indices.data(), {tensor.sparse_dim(), elements}, at::kLong);
  const at::Tensor values = at::from_blob(sum.values.data(), size, tensor.scalar_type());
  c10::OptionalStreamGuard in_order;
  if (exchange.stream) in_order.reset_stream(*exchange.stream);
  tensor.copy_(at::_sparse_coo_tensor_unsafe(indices, values, tensor.sizes())._coalesced_(true));
  if (exchange.stream) exchange.stream->synchronize();
}

}  // namespace

Backend::WorkPointer Backend::message(c10d::OpType type, const char* title, const CompressedPart& part, int peer,
                                      int tag) {
  const bool sends = type == c10d::OpType::SEND;
  const char* const operation = sends ? "send" : "recv";
  const Tensors tensors{part.tensor};
  sends ? check_readable(part.tensor, operation) : check_writable(part.tensor, operation);
  TorchCall call{type, title, tensors, {tensors}};
  state()->set_stream(call);
  // The next call with it is to be made after this one.
  if (!part.feedback.is_none()) call.is_gated = false;
  call.peer = peer;
  const at::Tensor memory = sends ? call.memory.read(tensors) : call.memory.write(tensors);
  const Elements elements = elements_of(memory);
  MessageCall message{.incoming = !sends,
                      .count = elements.count_in(memory),
                      .type = elements.type,
                      .peer = peer,
                      .options = message_options(operation, tag, call)};
  message.options.compression =
      part.compression ? part.compression : group_compression(options_->settings, *state()->job, part.tensor);
  message.options.error_feedback = part.feedback;
  if (sends) {
    message.input = memory.const_data_ptr();
  } else {
    message.output = memory.mutable_data_ptr();
  }
  call.posts.push_back([message = std::move(message)](Communicator& group) { return group.post(message); });
  return start(std::move(call));
}

Backend::WorkPointer Backend::send_part(const CompressedPart& part, int to, int tag) {
  return message(c10d::OpType::SEND, "qccl:send", part, to, tag);
}

Backend::WorkPointer Backend::recv_part(const CompressedPart& part, int from, int tag) {
  const bool any = from == kAnySource;
  return message(any ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV, any ? "qccl:recvAnySource" : "qccl:recv", part,
                 from, tag);
}

Backend::WorkPointer Backend::send(Tensors& tensors, int to, int tag) {
  return send_part({only(tensors, "send")}, to, tag);
}

Backend::WorkPointer Backend::recv(Tensors& tensors, int from, int tag) {
  return recv_part({only(tensors, "recv")}, from, tag);
}

Backend::WorkPointer Backend::recvAnysource(Tensors& tensors, int tag) { return recv(tensors, kAnySource, tag); }

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  std::optional<std::chrono::milliseconds> timeout;
  if (options.timeout != c10d::kUnsetTimeout) timeout = options.timeout;
  const auto own = state();
  const int tag = kReservedTags + kReservedTags / 2 + own->monitored_barriers++ % (kReservedTags / 2);
  with_torch_errors([&] { monitored_barrier(own->group, tag, timeout, wait_all_ranks); });
}

void add_sparse_all_reduce(SparseReduction reduction, TorchCall& call) {
  check_sparse(reduction.tensor, reduction.op);
  SparseSum sum = sum_of(reduction, call.options);
  const std::optional<c10::Stream> stream = current_stream(reduction.tensor);
  auto exchange =
      std::make_shared<Exchange>(Exchange{std::move(reduction), call.options.timeout, std::move(sum), stream});
  call.posts.push_back([exchange](Communicator& group) {
    SparseSum& own = exchange->sum;
    return group.all_gather_async(own.header().data(), own.headers().data(), own.header().size(), DataType::int64,
                                  {.timeout = exchange->timeout});
  });
  call.later_post = [exchange](Communicator& group) {
    exchange->sum.make_room();
    return post_messages(*exchange, group);
  };
  call.endings.push_back([exchange] { finish_reduction(*exchange); });
}

}  // namespace qccl::torch_binding
