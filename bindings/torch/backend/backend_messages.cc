// The part of Backend that sends messages from one rank to another.
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/reserved_tags.h"
#include "errors.h"

namespace qccl::torch_binding {
namespace {

MessageOptions message_options(const char* operation, int tag) {
  require(tag >= 0 && tag < Backend::kReservedTags, operation, "the tag must be from 0 to ", Backend::kReservedTags - 1,
          ", it is ", tag);
  MessageOptions options;
  options.tag = tag;
  options.log_name = log_caller();
  return options;
}

}  // namespace

Backend::WorkPointer Backend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = only(tensors, "send");
  check_readable(tensor, "send");
  TorchCall call{c10d::OpType::SEND, "qccl:send", tensors, {tensors}};
  call.peer = to;
  const at::Tensor memory = call.memory.read(tensors);
  const Elements elements = elements_of(memory);
  call.posts.push_back([=, data = memory.const_data_ptr(), count = elements.count_in(memory),
                        options = message_options("send", tag)](Communicator& group) {
    return group.send_async(data, count, elements.type, to, options);
  });
  return start(std::move(call));
}

Backend::WorkPointer Backend::receive(Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = only(tensors, "recv");
  check_writable(tensor, "recv");
  const bool any = from == kAnySource;
  TorchCall call{any ? c10d::OpType::RECVANYSOURCE : c10d::OpType::RECV,
                 any ? "qccl:recvAnySource" : "qccl:recv",
                 tensors,
                 {tensors}};
  call.peer = from;
  const at::Tensor memory = call.memory.write(tensors);
  const Elements elements = elements_of(memory);
  call.posts.push_back([=, data = memory.mutable_data_ptr(), count = elements.count_in(memory),
                        options = message_options("recv", tag)](Communicator& group) {
    return group.recv_async(data, count, elements.type, from, options);
  });
  return start(std::move(call));
}

Backend::WorkPointer Backend::recv(Tensors& tensors, int from, int tag) { return receive(tensors, from, tag); }

Backend::WorkPointer Backend::recvAnysource(Tensors& tensors, int tag) { return receive(tensors, kAnySource, tag); }

void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  std::optional<std::chrono::milliseconds> timeout;
  if (options.timeout != c10d::kUnsetTimeout) timeout = options.timeout;
  const int tag = kReservedTags + kReservedTags / 2 + monitored_barriers_++ % (kReservedTags / 2);
  with_torch_errors([&] { monitored_barrier(group_, tag, timeout, wait_all_ranks); });
}

}  // namespace qccl::torch_binding
