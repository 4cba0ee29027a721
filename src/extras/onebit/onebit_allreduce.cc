// DeepSpeed's compressed all-reduce (include/qccl/onebit.h), composed of an all_to_all and an all_gather of bytes.
//
// | message of both exchanges | content                                          |
// |---------------------------|--------------------------------------------------|
// | 0 ..  3                   | scale, float32                                   |
// | 4 ..  7                   | 0                                                |
// | 8 .. 15                   | the sender's count of elements, uint64           |
// | 16 ..                     | signs of one chunk, C / 8 bytes (kernels/onebit/onebit.h) |
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "base/result.h"
#include "engine/progress/progress_driver.h"
#include "extras/onebit/blocking_stage.h"
#include "group/communicator_state.h"
#include "job/call_memory.h"
#include "kernels/float_environment.h"
#include "kernels/onebit/onebit.h"

namespace qccl::internal {
namespace {

struct MessageHeader {
  float scale;
  std::uint32_t unused;
  std::uint64_t count;
};
static_assert(sizeof(MessageHeader) == 16);

// Elements of a result that may still be in a cache when the caller reads it: the 2 MiB of a large L2.
constexpr std::size_t kCachedOutput = 512 * 1024;

// |v| / sqrt(n) of n elements with this sum of squares.
float scale_of(double squares, std::size_t n) {
  const auto scale = static_cast<float>(std::sqrt(squares / static_cast<double>(n)));
  return std::isnan(scale) ? std::numeric_limits<float>::quiet_NaN() : scale;
}

class OnebitAllreduce {
 public:
  OnebitAllreduce(CommunicatorState& group, OnebitMemory::Messages& messages, const OnebitBuffers& buffers,
                  const OnebitOptions& options)
      : group_(group),
        messages_(messages),
        buffers_(buffers),
        world_(group.group().ranks.size()),
        own_(static_cast<std::size_t>(group.group().rank)),
        // Without elements the messages are headers only, whatever the padding.
        chunk_(buffers.input.empty() ? 0 : buffers.worker_error.size() / world_),
        message_bytes_(sizeof(MessageHeader) + chunk_ / kernels::kOnebitGroup) {
    calls_.compression = none();
    calls_.timeout = options.timeout;
    messages_.outgoing.resize(std::max(messages_.outgoing.size(), world_ * message_bytes_));
    messages_.incoming.resize(std::max(messages_.incoming.size(), world_ * message_bytes_));
    messages_.parts.clear();
    messages_.parts.reserve(world_);
  }

  void run() {
    const float scale = pack();
    const Work inputs = exchange(Collective::all_to_all, messages_.outgoing.data(), messages_.incoming.data());
    kernels::onebit_subtract(scale, worker_error(), world_ * chunk_);
    inputs.wait();
    check_counts();
    const float own_scale = average();
    // In place: the outgoing messages have arrived.
    std::byte* const outgoing = messages_.outgoing.data();
    const Work results = exchange(Collective::all_gather, message(messages_.outgoing, own_), outgoing);
    kernels::onebit_subtract(own_scale, buffers_.server_error.data(), chunk_);
    expand(own_);
    results.wait();
    for (std::size_t rank = 0; rank < world_; ++rank) {
      if (rank != own_) expand(rank);
    }
  }

 private:
  float* worker_error() const { return buffers_.worker_error.data(); }
  std::byte* message(std::vector<std::byte>& of, std::size_t rank) const { return of.data() + rank * message_bytes_; }
  std::byte* signs(std::vector<std::byte>& of, std::size_t rank) const {
    return message(of, rank) + sizeof(MessageHeader);
  }
  MessageHeader header(std::vector<std::byte>& of, std::size_t rank) const {
    MessageHeader header;
    std::memcpy(&header, message(of, rank), sizeof(header));
    return header;
  }
  void put_header(std::size_t rank, float scale) {
    const MessageHeader header{scale, 0, buffers_.input.size()};
    std::memcpy(message(messages_.outgoing, rank), &header, sizeof(header));
  }

  // Adds the input to the error and puts the signs into the messages; returns the scale.
  float pack() {
    double squares = 0;
    for (std::size_t rank = 0; rank < world_; ++rank) {
      const std::size_t begin = std::min(rank * chunk_, buffers_.input.size());
      const std::size_t inputs = std::min(chunk_, buffers_.input.size() - begin);
      squares += kernels::onebit_pack(buffers_.input.data() + begin, inputs, worker_error() + rank * chunk_, chunk_,
                                      signs(messages_.outgoing, rank));
    }
    const float scale = chunk_ == 0 ? 0 : scale_of(squares, world_ * chunk_);
    for (std::size_t rank = 0; rank < world_; ++rank) put_header(rank, scale);
    return scale;
  }

  // Averages all ranks' signs for the own chunk and puts the result's signs into the message; returns the scale.
  float average() {
    for (std::size_t rank = 0; rank < world_; ++rank) {
      const float scale = header(messages_.incoming, rank).scale / static_cast<float>(world_);
      messages_.parts.push_back({signs(messages_.incoming, rank), scale});
    }
    const double squares = kernels::onebit_sum(messages_.parts.data(), world_, buffers_.server_error.data(), chunk_,
                                               signs(messages_.outgoing, own_));
    const float scale = chunk_ == 0 ? 0 : scale_of(squares, chunk_);
    put_header(own_, scale);
    return scale;
  }

  // Writes chunk `rank` of the result.
  void expand(std::size_t rank) {
    const std::size_t begin = std::min(rank * chunk_, buffers_.output.size());
    const std::size_t elements = std::min(chunk_, buffers_.output.size() - begin);
    kernels::onebit_expand({signs(messages_.outgoing, rank), header(messages_.outgoing, rank).scale},
                           buffers_.output.data() + begin, elements, buffers_.output.size() > kCachedOutput);
  }

  Work exchange(Collective collective, const std::byte* input, std::byte* output) {
    return Work(group_.post(CollectiveCall{collective, input, output, message_bytes_, DataType::uint8, calls_}));
  }

  // Different counts with equal paddings would be silently wrong.
  void check_counts() {
    for (std::size_t rank = 0; rank < world_; ++rank) {
      const std::uint64_t count = header(messages_.incoming, rank).count;
      if (count == buffers_.input.size()) continue;
      const std::string what = fmt::format("compressed_allreduce: rank {} has {} elements, but rank {} has {}", own_,
                                           buffers_.input.size(), rank, count);
      group_.abort(what);
      ErrorInfo failure = group_.group().failure(ErrorKind::misuse, what);
      failure.peer = group_.group().ranks[rank];
      throw Error(std::move(failure));
    }
  }

  CommunicatorState& group_;
  OnebitMemory::Messages& messages_;
  const OnebitBuffers& buffers_;
  const std::size_t world_;
  const std::size_t own_;
  const std::size_t chunk_;  // elements
  const std::size_t message_bytes_;
  CallOptions calls_;
};

// Why the sizes are invalid; empty if they are valid.
std::string invalid_sizes(const OnebitBuffers& buffers, int world) {
  const std::size_t count = buffers.input.size();
  const std::size_t padded = buffers.worker_error.size();
  const std::size_t unit = kernels::kOnebitGroup * static_cast<std::size_t>(world);
  if (buffers.output.size() != count) {
    return fmt::format("{} elements of input, but {} of output", count, buffers.output.size());
  }
  if (count == 0) return {};
  if (padded < count || padded % unit != 0) {
    return fmt::format(
        "worker_error has {} elements; for {} elements on {} ranks it needs a multiple of {} that is "
        "at least {}, for example {} (qccl::onebit_sizes)",
        padded, count, world, unit, count, onebit_sizes(count, world).worker_error);
  }
  if (buffers.server_error.size() != padded / static_cast<std::size_t>(world)) {
    return fmt::format("server_error has {} elements; with a worker_error of {} on {} ranks it needs {}",
                       buffers.server_error.size(), padded, world, padded / static_cast<std::size_t>(world));
  }
  return {};
}

void run(CommunicatorState& group, const OnebitBuffers& buffers, const OnebitOptions& options) {
  const kernels::DefaultFloatEnvironment environment;
  if (buffers.input.empty()) {
    std::fill(buffers.worker_error.begin(), buffers.worker_error.end(), 0.0f);
    std::fill(buffers.server_error.begin(), buffers.server_error.end(), 0.0f);
  }
  auto messages = group.onebit_memory.take();
  OnebitAllreduce call(group, *messages, buffers, options);
  try {
    call.run();
  } catch (const std::bad_alloc&) {  // the error buffers have changed, so the call cannot be repeated
    const auto fail = [&group](engine::Engine& engine) { engine.groups().run_out_of_memory(group.group().id); };
    group.context()->driver().with_engine(fail);
    throw;
  }
  group.onebit_memory.give_back(std::move(messages));
}

template <class T>
engine::UsedBuffer used(const char* name, std::span<T> buffer) {
  return {name, reinterpret_cast<const std::byte*>(buffer.data()), buffer.size_bytes()};
}

// Runs in host memory, between copies from and to the device.
void run_staged(CommunicatorState& group, const OnebitBuffers& buffers, const OnebitOptions& options) {
  const auto context = group.context();
  const Nanoseconds timeout = group.with_builder([](const comm::CallBuilder& builder) { return builder.timeout(); });
  const auto deadline = [&] {
    return saturating_add(context->clock().now(), options.timeout ? saturating_nanoseconds(*options.timeout) : timeout);
  };
  const auto check = [&group](Status status) {
    if (!status.ok()) throw Error(group.group().failure(status.error().kind, status.error().message));
  };
  comm::BlockingStage stage(*context->call_memory().devices, context->clock());
  using Use = comm::BlockingStage::Use;
  const comm::BlockingStage::Buffer staged[] = {{used("input", buffers.input), Use::read},
                                                {used("output", buffers.output), Use::write},
                                                {used("worker_error", buffers.worker_error), Use::update},
                                                {used("server_error", buffers.server_error), Use::update}};
  check(stage.bring(*options.stream, staged, deadline()));
  const auto on_host = [&](std::size_t index, std::size_t count) {
    return std::span(reinterpret_cast<float*>(stage.host(index)), count);
  };
  run(group,
      {on_host(0, buffers.input.size()), on_host(1, buffers.output.size()), on_host(2, buffers.worker_error.size()),
       on_host(3, buffers.server_error.size())},
      options);
  check(stage.give_back(deadline()));
}

}  // namespace

std::unique_ptr<OnebitMemory::Messages> OnebitMemory::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return std::make_unique<Messages>();
  auto messages = std::move(free_.back());
  free_.pop_back();
  return messages;
}

void OnebitMemory::give_back(std::unique_ptr<Messages> messages) {
  const std::lock_guard lock(mutex_);
  try {
    free_.push_back(std::move(messages));
  } catch (const std::bad_alloc&) {
    // The messages are freed instead.
  }
}

}  // namespace qccl::internal

namespace qccl {

OnebitSizes onebit_sizes(std::size_t count, int world) {
  const auto ranks = static_cast<std::size_t>(std::max(world, 1));
  const std::size_t unit = kernels::kOnebitGroup * ranks;
  const std::size_t chunk = (count / unit + (count % unit != 0 ? 1 : 0)) * kernels::kOnebitGroup;
  return {chunk * ranks, chunk};
}

void compressed_allreduce(Communicator& group, const OnebitBuffers& buffers, const OnebitOptions& options) {
  constexpr const char* kName = "compressed_allreduce";
  memory_checked([&] {
    internal::CommunicatorState& state = *group.state();
    state.refuse_recording(kName);
    if (const std::string reason = internal::invalid_sizes(buffers, group.size()); !reason.empty()) {
      throw state.group().invalid_argument(kName, reason);
    }
    try {
      options.stream ? internal::run_staged(state, buffers, options) : internal::run(state, buffers, options);
    } catch (const Error& error) {
      ErrorInfo info = error.info();
      info.operation = kName;
      info.message += fmt::format(" (in {} of {} elements)", kName, buffers.input.size());
      throw Error(std::move(info));
    }
  });
}

}  // namespace qccl
