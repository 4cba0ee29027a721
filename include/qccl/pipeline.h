// Pipeline parallelism: the tensors that the stages of a model exchange, and those that the last stage sends to the
// others.
//
//   qccl::Pipeline pipeline(mesh.group("pp"));
//   qccl::Tensor input({32, 1024}), gradient({32, 1024});           // float32
//   pipeline.recv_forward(input);                                   // nothing on the first stage
//   qccl::Tensor output = forward(input);
//   pipeline.send_forward_recv_backward(output, gradient);          // nothing on the last stage
//
// The functions are those of Megatron-LM's schedules and inference, without their hangs: messages of the two directions
// are never confused, two stages that send to each other do not block each other, and a wrong size is an error on both
// sides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qccl/communicator.h"

namespace qccl {

// A tensor that owns its memory, unless it is made in the caller's; a value.
class Tensor {
 public:
  // The size of each dimension.
  using Shape = std::vector<std::int64_t>;
  // Zeros, in row-major order. Throws invalid_argument for more than 8 dimensions, a negative size, or more bytes than
  // memory can address.
  explicit Tensor(Shape shape = {0}, DataType type = DataType::float32);
  // In the caller's memory, with the values there; null: the same as above. The memory must outlive the tensor and its
  // copies, which share it. A tensor that receives another shape moves to memory of its own.
  Tensor(Shape shape, DataType type, void* memory);

  // Shape, type, number of elements, and memory in row-major order.
  const Shape& shape() const { return shape_; }
  DataType type() const { return type_; }
  std::size_t count() const { return count_; }
  void* data() { return memory_ == nullptr ? bytes_.data() : memory_; }
  const void* data() const { return memory_ == nullptr ? bytes_.data() : memory_; }
  // Throws invalid_argument if T is not the tensor's element type.
  template <class T>
  std::span<T> values() {
    check(data_type_of<T>());
    return {static_cast<T*>(data()), count_};
  }
  template <class T>
  std::span<const T> values() const {
    check(data_type_of<T>());
    return {static_cast<const T*>(data()), count_};
  }

 private:
  void check(DataType type) const;

  Shape shape_;
  DataType type_;
  std::size_t count_ = 1;
  void* memory_;                  // the caller's, or null
  std::vector<std::byte> bytes_;  // empty in the caller's memory
};

// Settings of a Pipeline.
struct PipelineOptions {
  // true: the shape and type precede every tensor, and the receiving tensor adopts them. false: receivers already have
  // the right shape and type, which saves the latency of a message. The same on all stages.
  bool variable_shapes = false;
  // Of float32, float16 and bfloat16 tensors on their way to a neighbour, forward and backward; other types, and what
  // the last stage broadcasts, are sent as they are. The same on all stages.
  Compression compression{};
  // A residual for each direction of a stage: the error of one tensor is added to the next that goes the same way. A
  // tensor with another number of elements begins with zeros. One tensor a direction may be on its way: with
  // exchange_async(), wait for the Work first.
  bool error_feedback = false;
};

// The tensors one stage moves in one call; null tensors do not move. The first and the last stage are neighbours of
// each other.
struct PipelineExchange {
  const Tensor* send_next = nullptr;  // to the next stage
  const Tensor* send_prev = nullptr;  // to the previous stage
  Tensor* recv_prev = nullptr;        // from the previous stage
  Tensor* recv_next = nullptr;        // from the next stage
};

// The stages of a model, one per rank of a group, in rank order. Every call blocks until its tensors are sent and
// received, at most for the group's timeout, and throws what Communicator::send() and recv() throw; a send that no
// stage receives throws deadline_exceeded. Compressed tensors are within the codec's bound of those sent. One thread at
// a time.
class Pipeline {
 public:
  // Collective over the group, of which it makes a dup(), so that its messages are separate from all others. Throws
  // misuse on all stages if the options differ.
  explicit Pipeline(Communicator stages, const PipelineOptions& options = {});

  // This rank's stage, from 0; the number of stages; whether this is the first or the last of them.
  int stage() const { return group_.rank(); }
  int stages() const { return group_.size(); }
  bool is_first() const { return stage() == 0; }
  bool is_last() const { return stage() == stages() - 1; }

  // To or from one neighbour. Throws misuse on a stage without that neighbour.
  void send_to_next(const Tensor& tensor);
  void send_to_prev(const Tensor& tensor);
  void recv_from_prev(Tensor& tensor);
  void recv_from_next(Tensor& tensor);

  // For schedules that call the same functions on every stage: a stage without that neighbour does nothing and returns
  // false.
  bool recv_forward(Tensor& input);
  bool recv_backward(Tensor& gradient);
  bool send_forward(const Tensor& output);
  bool send_backward(const Tensor& gradient);
  bool send_forward_recv_backward(const Tensor& output, Tensor& gradient);
  bool send_backward_recv_forward(const Tensor& gradient, Tensor& input);

  // For schedules in which a stage has several parts of the model, so that the last stage's output goes to the first:
  // each moves its tensors that are not null around the ring.
  void send_forward_recv_forward(const Tensor* output, Tensor* input);
  void send_backward_recv_backward(const Tensor* gradient, Tensor* next_gradient);
  void send_forward_backward_recv_forward_backward(const PipelineExchange& exchange);
  // The same without blocking: the tensors must stay valid until the Work ends. Throws misuse with variable_shapes.
  Work exchange_async(const PipelineExchange& exchange);

  // Copies the last stage's tensor to all stages'. Collective over all stages.
  void broadcast_from_last(Tensor& tensor);
  // Sends the last stage's tensor to the first; does nothing on the others.
  void broadcast_from_last_to_first(Tensor& tensor);

 private:
  bool move_if(bool has_neighbour, const PipelineExchange& exchange);
  void require_next(const char* call) const;
  void require_prev(const char* call) const;
  void move(const PipelineExchange& exchange);
  void fit_feedback(const PipelineExchange& exchange);

  Communicator group_;
  const PipelineOptions options_;
  ErrorFeedback forward_feedback_;
  ErrorFeedback backward_feedback_;
};

// Copies the root's tensor to all ranks of a group, whose tensors adopt its shape and type. Blocking, collective;
// throws what Communicator::broadcast() throws.
void broadcast_tensor(Communicator& group, Tensor& tensor, int root = 0);

// Copies the root's list, of any length, to all ranks of a group. For trivially copyable T. Blocking, collective;
// throws what Communicator::broadcast() throws.
template <class T>
void broadcast_list(Communicator& group, std::vector<T>& list, int root = 0) {
  std::vector<std::uint64_t> count{list.size()};
  group.broadcast(count, {.root = root});
  list.resize(static_cast<std::size_t>(count[0]));
  group.broadcast(list, {.root = root});
}

}  // namespace qccl
