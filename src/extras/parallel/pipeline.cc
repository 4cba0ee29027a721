#include "qccl/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

namespace qccl {
namespace {

// A message's tag says which way it goes, because with two stages the peer does not, and whether it is a shape.
constexpr int kForward = 0;
constexpr int kBackward = 1;
constexpr int kToFirst = 2;
constexpr int kShapes = 3;  // added to the tag of the shape's tensor

constexpr std::size_t kMaxDimensions = 8;
constexpr int kTypes = static_cast<int>(DataType::boolean) + 1;

// The wire form of a shape.
using Header = std::array<std::int64_t, 2 + kMaxDimensions>;  // type, number of dimensions, sizes

Error invalid(const std::string& what) { return Error({.kind = ErrorKind::invalid_argument, .message = what}); }

// Number of elements; empty if no tensor can have this shape.
std::optional<std::size_t> count_of(const Tensor::Shape& shape, DataType type) {
  if (shape.size() > kMaxDimensions) return std::nullopt;
  std::size_t count = 1;
  std::size_t bytes = 0;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, static_cast<std::size_t>(size), &count)) return std::nullopt;
  }
  if (__builtin_mul_overflow(count, element_bytes(type), &bytes)) return std::nullopt;
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max())) return std::nullopt;
  return count;
}

Header header_of(const Tensor& tensor) {
  const Tensor::Shape& shape = tensor.shape();
  Header header{static_cast<std::int64_t>(tensor.type()), static_cast<std::int64_t>(shape.size())};
  std::copy(shape.begin(), shape.end(), header.begin() + 2);
  return header;
}

// Gives the tensor the shape and type of a header that came from a peer.
void adopt_shape(Tensor& tensor, const Header& header) {
  const auto [type, dimensions] = std::pair(header[0], header[1]);
  if (type < 0 || type >= kTypes || dimensions < 0 || dimensions > static_cast<std::int64_t>(kMaxDimensions)) {
    throw Error({.kind = ErrorKind::corrupt_data, .message = "QCCL tensor: a received shape is invalid"});
  }
  const Tensor::Shape shape(header.begin() + 2, header.begin() + 2 + dimensions);
  const auto element = static_cast<DataType>(type);
  if (shape != tensor.shape() || element != tensor.type()) tensor = Tensor(shape, element);
}

// Memory to send or receive.
struct Message {
  bool is_outgoing;
  void* data;  // only read if outgoing
  std::size_t count;
  DataType type;
  int peer;
  MessageOptions options;
};

// Posts all messages before any of them moves: two stages that send to each other both receive meanwhile.
Work post(Communicator& group, std::span<const Message> messages) {
  group.group_start();
  for (const Message& message : messages) {
    if (message.is_outgoing) {
      group.send_async(message.data, message.count, message.type, message.peer, message.options);
    } else {
      group.recv_async(message.data, message.count, message.type, message.peer, message.options);
    }
  }
  return group.group_end();
}

// Work on memory of the enclosing scope: the destructor waits for it, even if an exception is thrown.
class Awaited {
 public:
  explicit Awaited(Work work) : work_(std::move(work)) {}
  ~Awaited() {
    try {
      work_.wait();
    } catch (const Error&) {
      // The group has failed, and that error is already being thrown.
    }
  }
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;
  void wait() const { work_.wait(); }

 private:
  const Work work_;
};

// A tensor to send or receive.
struct Move {
  bool is_outgoing;
  Tensor* tensor;  // only read if outgoing
  int peer;
  MessageOptions options;  // if its type can be compressed; else the tag alone

  Message message() const {
    Message own{is_outgoing, tensor->data(), tensor->count(), tensor->type(), peer, options};
    if (!is_compressible(own.type)) own.options = {.tag = options.tag};
    return own;
  }
};

// How a stage's tensors are encoded.
struct Coding {
  Compression compression;
  ErrorFeedback forward;  // of those that it sends, as the next
  ErrorFeedback backward;
};

std::vector<Move> moves_of(const Communicator& group, const PipelineExchange& exchange, const Coding& coding) {
  const int next = (group.rank() + 1) % group.size();
  const int prev = (group.rank() + group.size() - 1) % group.size();
  std::vector<Move> moves;
  const auto add = [&](const Tensor* tensor, int peer, int tag, const ErrorFeedback* feedback) {
    if (tensor == nullptr) return;
    MessageOptions options{.tag = tag, .compression = coding.compression};
    if (feedback != nullptr) options.error_feedback = *feedback;
    moves.push_back({feedback != nullptr, const_cast<Tensor*>(tensor), peer, std::move(options)});
  };
  add(exchange.recv_prev, prev, kForward, nullptr);
  add(exchange.recv_next, next, kBackward, nullptr);
  add(exchange.send_next, next, kForward, &coding.forward);
  add(exchange.send_prev, prev, kBackward, &coding.backward);
  return moves;
}

Work post(Communicator& group, std::span<const Move> moves) {
  std::vector<Message> messages;
  for (const Move& own : moves) messages.push_back(own.message());
  return post(group, messages);
}

// No send waits for a receive, not even of shapes: a neighbour may need this stage's data before it sends its own.
void move_with_shapes(Communicator& group, std::span<const Move> moves) {
  std::vector<Header> headers(moves.size());
  std::vector<Message> shapes, outgoing, incoming;
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const Move& own = moves[i];
    if (own.is_outgoing) headers[i] = header_of(*own.tensor);
    std::vector<Message>& list = own.is_outgoing ? outgoing : shapes;
    list.push_back({own.is_outgoing,
                    headers[i].data(),
                    headers[i].size(),
                    DataType::int64,
                    own.peer,
                    {.tag = own.options.tag + kShapes}});
    if (own.is_outgoing) list.push_back(own.message());
  }
  const Awaited received_shapes(post(group, shapes));
  const Awaited sent(post(group, outgoing));
  received_shapes.wait();
  for (std::size_t i = 0; i < moves.size(); ++i) {
    if (moves[i].is_outgoing) continue;
    adopt_shape(*moves[i].tensor, headers[i]);
    incoming.push_back(moves[i].message());
  }
  post(group, incoming).wait();
  sent.wait();
}

void move(Communicator& group, std::span<const Move> moves, const PipelineOptions& options) {
  if (options.variable_shapes) return move_with_shapes(group, moves);
  post(group, moves).wait();
}

// The options that must be the same on all stages, as one stage sends them to the others.
struct SharedOptions {
  std::uint32_t variable_shapes = 0;
  std::uint32_t codec = 0;
  std::array<double, Compression::kMaxSettings> settings{};

  friend bool operator==(const SharedOptions&, const SharedOptions&) = default;
  // How another stage's options differ, for the error.
  std::string difference(const SharedOptions& other, std::ptrdiff_t stage) const {
    if (variable_shapes != other.variable_shapes) {
      return fmt::format("variable_shapes is {} on stage 0 and {} on stage {}", variable_shapes != 0,
                         other.variable_shapes != 0, stage);
    }
    return fmt::format("compression is {} on stage 0 and {} on stage {}", Compression{codec, settings}.to_string(),
                       Compression{other.codec, other.settings}.to_string(), stage);
  }
};

[[noreturn]] void refuse(const Communicator& group, const std::string& what) {
  throw Error({.kind = ErrorKind::misuse,
               .message = fmt::format("QCCL stage {} of {}, group '{}': pipeline: {}", group.rank(), group.size(),
                                      group.name(), what),
               .rank = group.rank()});
}

}  // namespace

// ---- Tensor

Tensor::Tensor(Shape shape, DataType type) : Tensor(std::move(shape), type, nullptr) {}

Tensor::Tensor(Shape shape, DataType type, void* memory) : shape_(std::move(shape)), type_(type), memory_(memory) {
  const auto count = count_of(shape_, type_);
  if (!count) {
    throw invalid(fmt::format("QCCL tensor: the shape [{}] of {} dimensions is impossible", fmt::join(shape_, ", "),
                              shape_.size()));
  }
  count_ = *count;
  if (memory_ == nullptr) bytes_.resize(count_ * element_bytes(type_));
}

void Tensor::check(DataType type) const {
  if (type == type_) return;
  throw invalid(fmt::format("QCCL tensor: its elements are {}, not {}", to_string(type_), to_string(type)));
}

// ---- Pipeline

Pipeline::Pipeline(Communicator stages, const PipelineOptions& options) : group_(stages.dup()), options_(options) {
  const SharedOptions own{options.variable_shapes, options.compression.codec, options.compression.settings};
  std::vector<SharedOptions> all(static_cast<std::size_t>(group_.size()));
  group_.all_gather(std::vector<SharedOptions>{own}, all);
  const auto other = std::ranges::find_if(all, [&](const SharedOptions& each) { return each != all[0]; });
  if (other != all.end()) refuse(group_, all[0].difference(*other, other - all.begin()));
}

void Pipeline::fit_feedback(const PipelineExchange& exchange) {
  const auto fit = [](const Tensor* sent, ErrorFeedback& feedback) {
    if (sent == nullptr || !is_compressible(sent->type())) return;
    if (feedback.is_none() || feedback.size() != sent->count()) feedback = ErrorFeedback(sent->count());
  };
  if (!options_.error_feedback) return;
  fit(exchange.send_next, forward_feedback_);
  fit(exchange.send_prev, backward_feedback_);
}

void Pipeline::move(const PipelineExchange& exchange) {
  fit_feedback(exchange);
  const Coding coding{options_.compression, forward_feedback_, backward_feedback_};
  qccl::move(group_, moves_of(group_, exchange, coding), options_);
}

bool Pipeline::move_if(bool has_neighbour, const PipelineExchange& exchange) {
  if (has_neighbour) move(exchange);
  return has_neighbour;
}

Work Pipeline::exchange_async(const PipelineExchange& exchange) {
  if (options_.variable_shapes) refuse(group_, "exchange_async needs shapes that are known: variable_shapes is set");
  fit_feedback(exchange);
  return post(group_, moves_of(group_, exchange, {options_.compression, forward_feedback_, backward_feedback_}));
}

void Pipeline::send_forward_backward_recv_forward_backward(const PipelineExchange& exchange) { move(exchange); }

void Pipeline::require_next(const char* call) const {
  if (is_last()) refuse(group_, fmt::format("{}: this is the last stage, none comes after it", call));
}

void Pipeline::require_prev(const char* call) const {
  if (is_first()) refuse(group_, fmt::format("{}: this is the first stage, none comes before it", call));
}

void Pipeline::send_to_next(const Tensor& tensor) {
  require_next("send_to_next");
  move({.send_next = &tensor});
}

void Pipeline::send_to_prev(const Tensor& tensor) {
  require_prev("send_to_prev");
  move({.send_prev = &tensor});
}

void Pipeline::recv_from_prev(Tensor& tensor) {
  require_prev("recv_from_prev");
  move({.recv_prev = &tensor});
}

void Pipeline::recv_from_next(Tensor& tensor) {
  require_next("recv_from_next");
  move({.recv_next = &tensor});
}

bool Pipeline::recv_forward(Tensor& input) { return move_if(!is_first(), {.recv_prev = &input}); }
bool Pipeline::recv_backward(Tensor& gradient) { return move_if(!is_last(), {.recv_next = &gradient}); }
bool Pipeline::send_forward(const Tensor& output) { return move_if(!is_last(), {.send_next = &output}); }
bool Pipeline::send_backward(const Tensor& gradient) { return move_if(!is_first(), {.send_prev = &gradient}); }

bool Pipeline::send_forward_recv_backward(const Tensor& output, Tensor& gradient) {
  return move_if(!is_last(), {.send_next = &output, .recv_next = &gradient});
}

bool Pipeline::send_backward_recv_forward(const Tensor& gradient, Tensor& input) {
  return move_if(!is_first(), {.send_prev = &gradient, .recv_prev = &input});
}

void Pipeline::send_forward_recv_forward(const Tensor* output, Tensor* input) {
  move({.send_next = output, .recv_prev = input});
}

void Pipeline::send_backward_recv_backward(const Tensor* gradient, Tensor* next_gradient) {
  move({.send_prev = gradient, .recv_next = next_gradient});
}

void Pipeline::broadcast_from_last(Tensor& tensor) {
  const int last = stages() - 1;
  if (options_.variable_shapes) return broadcast_tensor(group_, tensor, last);
  group_.broadcast(tensor.data(), tensor.count(), tensor.type(), {.root = last});
}

void Pipeline::broadcast_from_last_to_first(Tensor& tensor) {
  if (is_first() == is_last()) return;
  const Move own{is_last(), &tensor, is_last() ? 0 : stages() - 1, {.tag = kToFirst}};
  qccl::move(group_, std::span(&own, 1), options_);
}

// ---- Broadcasts

void broadcast_tensor(Communicator& group, Tensor& tensor, int root) {
  Header header{};
  if (group.rank() == root) header = header_of(tensor);
  group.broadcast(header.data(), header.size(), DataType::int64, {.root = root});
  adopt_shape(tensor, header);
  group.broadcast(tensor.data(), tensor.count(), tensor.type(), {.root = root});
}

}  // namespace qccl
