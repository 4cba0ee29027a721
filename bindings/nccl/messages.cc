// ncclSend() and ncclRecv(). Where the host waits, each blocks outside of a group until its message has gone or come:
// a ring of ranks that all send before they receive has to be a group.
#include <utility>

#include "base/log.h"
#include "buffers.h"
#include "groups.h"
#include "results.h"
#include "types.h"

namespace qccl::nccl {
namespace {

struct Message {
  bool is_sent;
  void* data;  // only read if it is sent
  std::size_t count;
  ncclDataType_t type;
  int peer;
  ncclComm_t comm;
  cudaStream_t stream;
};

void warn_outside_of_groups() {
  if (this_thread().depth > 0) return;
  {
    const std::lock_guard lock(process().mutex);
    if (std::exchange(process().has_warned_of_messages, true)) return;
  }
  log(LogLevel::warning,
      "ncclSend() and ncclRecv() outside of a group block until the message has gone or come: ranks that all send "
      "before they receive wait until the deadline; put them into ncclGroupStart() and ncclGroupEnd()");
}

ncclResult_t run(const Message& message) {
  return guarded([&] {
    const CommPtr comm = find(message.comm);
    const Communicator own = comm->group_for_operation();
    const DataType type = type_of(message.type, false);
    if (message.peer < 0 || message.peer >= own.size()) {
      refuse_argument("peer " + std::to_string(message.peer) + " of " + std::to_string(own.size()) + " ranks");
    }
    if (message.count == 0) return ncclSuccess;
    if (message.data == nullptr) refuse_argument("a message in a null buffer");
    const MessageOptions options{.stream = stream_of(*comm, message.stream, {message.data})};
    if (!options.stream || own.stream_order(options.stream->device) == StreamOrder::host) warn_outside_of_groups();
    const auto post = [message, type, options](Communicator& group, bool) {
      return message.is_sent ? group.send_async(message.data, message.count, type, message.peer, options)
                             : group.recv_async(message.data, message.count, type, message.peer, options);
    };
    submit({.comm = comm, .post = post, .stream = options.stream});
    return ncclSuccess;
  });
}

}  // namespace
}  // namespace qccl::nccl

using namespace qccl::nccl;

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return run({true, const_cast<void*>(data), count, type, peer, comm, stream});
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return run({false, data, count, type, peer, comm, stream});
}
