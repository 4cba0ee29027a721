// Another library inside the hosts: for groups on several hosts whose ranks reach each other faster inside a host than
// QCCL would carry their data there, as GPUs with NVLink do. That library adds and copies among the ranks of a host;
// QCCL carries what goes between hosts, compressed. Each rank has a share of it, and all send at once.
//
//   comm.use_inside(make_inside);   // on every rank
//   comm.all_reduce(gradient, {.compression = qccl::block_int({.bits = 4})});
//
// docs/gpu-hosts.md has the details.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "qccl/call.h"
#include "qccl/device.h"
#include "qccl/types.h"

namespace qccl {

class Communicator;

// One call of an InsideGroup. Counts are in elements, the same on all its ranks.
struct InsideCall {
  const void* input = nullptr;  // as InsideGroup's functions say
  void* output = nullptr;       // not the input, unless they say so
  std::size_t count = 0;        // elements
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;           // reduce_scatter: sum, min, max or prod
  int root = 0;                          // broadcast
  Milliseconds timeout{};                // of the call
  std::optional<DeviceStream> stream{};  // the buffers are in its device's memory; unset: in the host's
};

// The collectives of the ranks of one host, whose order is InsideHost's. Implemented by the program or an adapter.
// One thread calls the first four, in the same order on all its ranks. Each blocks until the output is there, or throws
// by the timeout, or soon after abort(); an exception fails QCCL's group on all its ranks. After that it uses neither
// buffer. Calls on a stream may return once all of their work has been submitted to it.
class InsideGroup {
 public:
  virtual ~InsideGroup() = default;
  // Rank r's output becomes elements r x count to (r + 1) x count of the sum (or op) of all inputs, of size x count
  // elements. The output may be that part of the input itself.
  virtual void reduce_scatter(const InsideCall& call) = 0;
  // Every output becomes the inputs of all ranks, in their order: size x count elements. The input may be the rank's
  // own part of the output itself.
  virtual void all_gather(const InsideCall& call) = 0;
  // The root's output, of count elements, becomes that of all. The input is not used.
  virtual void broadcast(const InsideCall& call) = 0;
  // Both buffers have size x count elements. Part r of the input becomes part of rank r's output, at the place of this
  // rank. They do not overlap.
  virtual void all_to_all(const InsideCall& call) = 0;
  // Ends the call under way and all later ones. Any thread may call it, at any time, more than once.
  virtual void abort() noexcept = 0;
};

// The ranks of a host that make an InsideGroup together.
struct InsideHost {
  std::string name{};      // of the group, without repetition in the job: the same on these ranks
  int rank = 0;            // of this process among them, by their order in QCCL's group
  int size = 1;            // 2 or more
  Milliseconds timeout{};  // to meet: the job's init timeout
  Communicator& group;     // of these ranks: to exchange what they need to meet
};

// Collective over the host's ranks; throws if that fails.
using InsideFactory = std::function<std::unique_ptr<InsideGroup>(const InsideHost& host)>;

}  // namespace qccl
