// The C++ API: start with init(), call collectives on the Communicator it returns.
//
//   auto comm = qccl::init();                        // ranks from the environment
//   std::vector<float> gradient = ...;
//   comm.all_reduce(gradient);                       // sum, in place, on every rank
//   comm.all_reduce(gradient, {.op = qccl::ReduceOp::avg,
//                              .compression = qccl::minmax({.bits = 4})});
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "qccl/compression.h"
#include "qccl/device.h"
#include "qccl/error.h"
#include "qccl/error_feedback.h"
#include "qccl/failures.h"
#include "qccl/growth.h"
#include "qccl/log.h"
#include "qccl/onebit.h"
#include "qccl/store.h"
#include "qccl/types.h"

namespace qccl {

using Milliseconds = std::chrono::milliseconds;

// Options of init(). Unset fields come from the environment, as the comments say.
struct InitOptions {
  std::optional<int> rank{};                    // RANK
  std::optional<int> world{};                   // WORLD_SIZE
  std::optional<std::string> master_address{};  // MASTER_ADDR
  std::optional<std::uint16_t> master_port{};   // MASTER_PORT
  std::shared_ptr<Store> store{};               // your own meeting point instead of address and port
  std::string job{};                            // keeps jobs apart that share a store
  std::optional<Milliseconds> timeout{};        // of each operation; QCCL_TIMEOUT, else 300 s
  std::optional<Milliseconds> init_timeout{};   // to find all ranks; QCCL_INIT_TIMEOUT, else 300 s
  std::optional<TransportChoice> transport{};   // QCCL_TRANSPORT, else automatic
  std::optional<Compression> compression{};     // QCCL_COMPRESSION, else none
  std::string key{};                            // of the job, 16 bytes or more (docs/security.md); QCCL_KEY, else none
  std::optional<LogOptions> log{};              // QCCL_LOG_FILE also turns it on, and names the file
  // Growing (growth.h). `open`: newcomers may come to this rank's door, at `door_port` of all interfaces (0: any port).
  std::optional<bool> open{};                // QCCL_OPEN, else not
  std::optional<std::uint16_t> door_port{};  // QCCL_DOOR_PORT, else any
  // Instead of rank and world: waits, for the init timeout, until an open job's grow() takes this process in. Doors of
  // members, "10.0.0.1:40000,10.0.0.2:40000", or "store": those listed where the job met (store, or address and port).
  std::string join{};  // QCCL_JOIN, else none
};

// Settings of one collective call.
struct CallOptions {
  ReduceOp op = ReduceOp::sum;
  double premul_factor = 1;                  // premul_sum: factor of this rank's input; ranks may differ
  int root = 0;                              // rank in the group; broadcast, reduce, gather, scatter
  std::optional<Compression> compression{};  // overrides the group's; none() turns it off
  ErrorFeedback error_feedback{};            // reductions only: for this rank's input, see error_feedback.h
  Algorithm algorithm = Algorithm::automatic;
  std::optional<Milliseconds> timeout{};  // of this operation; unset: the group's
  std::string log_name{};                 // the call's name in the log; "": its operation
  // For the _async calls: the caller waits for the operation right away, so no other thread is woken to drive it. If
  // the caller does not wait, the operation begins up to 50 ms late.
  bool awaited = false;
  // The buffers are in the stream's device's memory (or pinned): see device.h. Unset: they are in host memory.
  std::optional<DeviceStream> stream{};
  // If the call fails, its input is what it was before, so that it can be repeated. Calls that do not overwrite their
  // input leave it alone anyway. Others copy the part that they overwrite while they are in flight (memory: that part
  // once, kept for later calls), use memory from allocate() like any other, and on a device's memory go by way of the
  // host. The same on all ranks.
  bool keep_input = false;
};

// Settings of one message.
struct MessageOptions {
  int tag = 0;                            // not negative; a recv takes only messages of its own tag
  std::optional<Milliseconds> timeout{};  // of this operation; unset: the group's
  std::string log_name{};                 // see CallOptions::log_name
  std::optional<DeviceStream> stream{};   // see CallOptions::stream; the peer's buffer may be in other memory
};

// One operation of a coalesced call: input, output and count mean what they mean in the collective itself.
struct CallBuffers {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
};

// This rank's counters since the communicator's context began.
struct Traffic {
  std::uint64_t payload_bytes_sent = 0;  // codes and data, without frame headers
  std::uint64_t header_bytes_sent = 0;   // frame headers and control frames
  std::uint64_t shared_bytes_sent = 0;   // small operations that peers on this host read from shared memory
};

class Window;

namespace internal {
struct WorkState;
class CommunicatorState;
}  // namespace internal

// An operation in flight; a default Work is done. Copies name the same operation; dropping all of them never cancels
// it. The operation's buffers must stay valid and unmodified until wait() returns or throws. Thread-safe.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<internal::WorkState> state) : state_(std::move(state)) {}

  // Blocks until the operation is done, at most for its own timeout, and drives progress meanwhile. Throws the
  // operation's Error. If `timeout` passes first, throws Error(deadline_exceeded) with the operation's number and the
  // ranks it waits for; the operation itself continues, and the caller may wait again. Throws misuse for a call that
  // group_end() has not posted.
  void wait() const;
  void wait(Milliseconds timeout) const;
  bool done() const;
  // The failure of an operation that has ended; empty while it runs and when it succeeded.
  std::optional<ErrorInfo> error() const;
  // The operation's number in its group, as errors print it ("#7"); messages are numbered apart from collectives. For
  // calls grouped by group_start(), the number of the first. 0 until the operation has a number, and if its group had
  // failed before.
  std::uint64_t number() const;
  // The rank whose message a finished recv took; -1 for all other operations.
  int source() const;
  // When the operation was posted, began and ended, as the log records it. Empty until it ends, if the log does not
  // record it, and for group_end(), whose calls have times of their own.
  std::optional<OperationTimes> times() const;
  // Makes the stream wait for the end of the operation, and returns at once: work that is submitted to it from now on
  // sees the result. If the operation has failed, throws its Error. If it fails later the stream goes on all the same:
  // output that it has begun to write is filled with 0xFF bytes (NaN), a line is logged, and error() and the group's
  // later calls say why. The same as wait() where Communicator::stream_order() is StreamOrder::host, and for a stream
  // that shares a queue of the device with one of the library's (docs/gpu.md). A stream of another device than the
  // operation's may wait too. Block all operations of a group on a stream after posting them:
  // what is posted behind a gate waits for it. Throws misuse for a call that group_end() has not posted.
  void block(const DeviceStream& stream) const;
  // Calls `callback` once when the operation ends, on the thread that ends it, or at once if the operation has ended.
  // The callback must not block, throw, or call into the library except to query this Work.
  void notify(std::function<void()> callback) const;

 private:
  std::shared_ptr<internal::WorkState> state_;
};

// `size()` elements of memory from Communicator::allocate(), zeroed. Copies name the same memory, which is freed with
// the last of them.
template <class T>
class SharedBuffer {
 public:
  SharedBuffer(std::shared_ptr<void> memory, std::size_t size) : memory_(std::move(memory)), size_(size) {}
  T* data() const { return static_cast<T*>(memory_.get()); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t index) const { return data()[index]; }
  T* begin() const { return data(); }
  T* end() const { return data() + size_; }
  operator std::span<T>() const { return {data(), size_}; }

 private:
  std::shared_ptr<void> memory_;
  std::size_t size_;
};

// A group of ranks with an operation sequence of its own. All members call the same collectives in the same order. A
// handle: copies name the same group. Thread-safe; calls of one group from several threads need an order on which the
// ranks agree. The last handle's destructor waits for the group's operations, each of which ends by its timeout.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<internal::CommunicatorState> state) : state_(std::move(state)) {}

  int rank() const;
  int size() const;
  const std::string& name() const;

  // ---- Collectives
  //
  // Counts are in elements of `type` and, like type and options, the same on all ranks; premul_factor, timeout,
  // log_name and awaited may differ. Input and output are the same memory only where a call works in place; otherwise
  // they do not overlap. A buffer without elements may be null. A call blocks until this rank has its result, at most
  // for its timeout (CallOptions::timeout, else the group's).
  //
  // A call that fails throws Error. Its output is then unspecified; in place that is its input too, except with
  // CallOptions::keep_input:
  //   invalid_argument, unsupported   The call is wrong and nothing was sent. Fix the call; the group stays usable.
  //   resource_exhausted              If nothing was sent, the same call works once there is memory again; the other
  //                                   ranks wait for it until their deadline. Otherwise the group is lost.
  //   misuse                          The communicator is closed or inherited by a forked child, or another call uses
  //                                   the error feedback: nothing was sent. Or the ranks made different calls, which
  //                                   the message names: the group is lost.
  //   any other                       The group is lost: every later call throws the same first error. The remaining
  //                                   ranks go on by shrink(), or close it.

  // output = input reduced over all ranks. `count` elements each. In place: input == output.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  // Copies the root's buffer of `count` elements to every rank's. With compression the root's own buffer also becomes
  // what the other ranks decode; so does each rank's own part in all_gather.
  void broadcast(void* buffer, std::size_t count, DataType type, const CallOptions& = {});
  // output (size() * count elements) = every rank's input (count elements), in rank order.
  // In place: input == output + rank() * count elements.
  void all_gather(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  // output (count elements) = this rank's part of the reduction of input (size() * count elements).
  // In place: output == input + rank() * count elements.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  // Like all_reduce, but only the root gets the output; the other ranks' output is not written and may be null. In
  // place on the root: input == output.
  void reduce(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  // The root's output (size() * count elements) = every rank's input (count elements), in rank
  // order. In place on the root: input == output + root * count elements.
  void gather(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  // output (count elements) = this rank's part of the root's input (size() * count elements).
  // In place on the root: output == input + root * count elements.
  void scatter(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  // output (size() * count elements) = every rank's part for this rank, in rank order; input (as many elements) holds
  // this rank's part for each rank. Not in place.
  void all_to_all(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  // Returns once all ranks have called it.
  void barrier(const CallOptions& = {});

  // The same with one count per rank (0 is allowed) and the parts packed in rank order. `counts` is the same list of
  // size() counts on all ranks; it is copied. In all_to_all_v only each pair must agree: the count one rank sends to a
  // peer is the count the peer receives from it; otherwise the call fails on both and names both counts.
  using Counts = std::span<const std::size_t>;
  void all_gather_v(const void* input, void* output, Counts counts, DataType type, const CallOptions& = {});
  void reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, const CallOptions& = {});
  void gather_v(const void* input, void* output, Counts counts, DataType type, const CallOptions& = {});
  void scatter_v(const void* input, void* output, Counts counts, DataType type, const CallOptions& = {});
  void all_to_all_v(const void* input, Counts sends, void* output, Counts receives, DataType type,
                    const CallOptions& = {});

  // The same without blocking: Work::wait() throws what the blocking call would, except for a wrong call, which throws
  // here. Buffers must stay valid and unmodified until the Work is done. The order of posting is the order of the
  // operations in the group. A rank has at most min(4096, 16384 / size()) collectives of a group in flight: a further
  // call blocks until one of them ends, which each does by its deadline. group_end() and coalesced calls keep the same
  // limit and post longer lists in parts.
  Work all_reduce_async(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  Work broadcast_async(void* buffer, std::size_t count, DataType type, const CallOptions& = {});
  Work all_gather_async(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  Work reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  Work reduce_async(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  Work gather_async(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  Work scatter_async(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  Work all_to_all_async(const void* input, void* output, std::size_t count, DataType type, const CallOptions& = {});
  Work barrier_async(const CallOptions& = {});
  Work all_gather_v_async(const void* input, void* output, Counts counts, DataType type, const CallOptions& = {});
  Work reduce_scatter_v_async(const void* input, void* output, Counts counts, DataType type, const CallOptions& = {});
  Work gather_v_async(const void* input, void* output, Counts counts, DataType type, const CallOptions& = {});
  Work scatter_v_async(const void* input, void* output, Counts counts, DataType type, const CallOptions& = {});
  Work all_to_all_v_async(const void* input, Counts sends, void* output, Counts receives, DataType type,
                          const CallOptions& = {});

  // Several operations of one type as one call with one Work, which ends with the last of them and throws the first
  // failure. If one is wrong, none is posted.
  void all_reduce_coalesced(std::span<const CallBuffers> buffers, DataType type, const CallOptions& = {});
  void all_gather_coalesced(std::span<const CallBuffers> buffers, DataType type, const CallOptions& = {});
  void reduce_scatter_coalesced(std::span<const CallBuffers> buffers, DataType type, const CallOptions& = {});
  Work all_reduce_coalesced_async(std::span<const CallBuffers> buffers, DataType type, const CallOptions& = {});
  Work all_gather_coalesced_async(std::span<const CallBuffers> buffers, DataType type, const CallOptions& = {});
  Work reduce_scatter_coalesced_async(std::span<const CallBuffers> buffers, DataType type, const CallOptions& = {});

  // DeepSpeed's 1-bit all-reduce with error feedback (qccl/onebit.h): `output` becomes the AVERAGE over the ranks, the
  // same bits on all of them, compressed to a sign per element and one scale per chunk; the error buffers receive the
  // errors of compression. Blocking. `output` is `input` or overlaps nothing; `input` is only read. The error buffers
  // overlap nothing and have the sizes of onebit_sizes(), or those of a larger padding; otherwise invalid_argument
  // names the sizes needed. All ranks give the same counts; otherwise all fail with misuse. With no elements both error
  // buffers become zero. A NaN makes the whole result NaN on every rank, and stays in the error buffers until the
  // caller clears them. After an error other than invalid_argument, output and error buffers are unspecified. Throws
  // misuse between group_start() and group_end().
  void compressed_allreduce(std::span<const float> input, std::span<float> output, std::span<float> worker_error,
                            std::span<float> server_error, const OnebitOptions& = {});
  // The same in place, with any valid padding.
  void compressed_allreduce(std::span<float> buffer, std::span<float> worker_error, std::span<float> server_error,
                            const OnebitOptions& options = {}) {
    compressed_allreduce(buffer, buffer, worker_error, server_error, options);
  }

  // Messages of `count` elements from one rank to another, ordered independently of the collectives: between two ranks
  // the first send of a tag matches the first recv of that tag. If count or type differ, the group fails on all ranks
  // with misuse. A blocking call returns when the message is sent or received, at most after its timeout, and fails as
  // collectives do. A send may end before its recv is called (up to 64 KiB, within a budget), but the caller must not
  // count on that; a send to this rank itself ends when it is received.
  void send(const void* data, std::size_t count, DataType type, int to, const MessageOptions& = {});
  // `from` may be kAnySource, which takes the earliest message of that tag. Returns the sender's rank.
  int recv(void* data, std::size_t count, DataType type, int from, const MessageOptions& = {});
  Work send_async(const void* data, std::size_t count, DataType type, int to, const MessageOptions& = {});
  Work recv_async(void* data, std::size_t count, DataType type, int from, const MessageOptions& = {});
  // Sends and receives at the same time, so that ranks may exchange in any pattern. The two buffers do not overlap.
  // Returns the sender's rank.
  struct Outgoing {
    const void* data;
    std::size_t count;
    DataType type;
    int to;
  };
  struct Incoming {
    void* data;
    std::size_t count;
    DataType type;
    int from;
  };
  int sendrecv(const Outgoing& outgoing, const Incoming& incoming, const MessageOptions& = {});

  // After group_start(), this thread's calls on any communicator of this context are only recorded: they return at once
  // (recv returns -1), and their Works cannot be waited for yet. group_end() posts all of them before any of them moves
  // data and returns one Work, which ends when all have ended and throws the first failure. If a recorded call throws,
  // the recording ends and none of its calls is posted. group_start() throws misuse if this thread records already,
  // group_end() if it does not.
  void group_start();
  Work group_end();
  // Ends the recording in place of group_end(), but posts none of its calls, all of which are this group's. Returns the
  // seconds that they would take one after the other, as the cost model predicts them from the profile (`qccl doctor
  // --measure`), without waiting for other ranks. Local; the recorded calls' Works never end. Throws misuse as
  // group_end() does, and for calls of another group.
  double group_estimate();

  // The same for containers of the listed element types.
  template <class T>
  void all_reduce(std::vector<T>& buffer, const CallOptions& options = {}) {
    all_reduce(buffer.data(), buffer.data(), buffer.size(), data_type_of<T>(), options);
  }
  template <class T>
  void all_reduce(std::span<T> buffer, const CallOptions& options = {}) {
    all_reduce(buffer.data(), buffer.data(), buffer.size(), data_type_of<T>(), options);
  }
  template <class T>
  Work all_reduce_async(std::span<T> buffer, const CallOptions& options = {}) {
    return all_reduce_async(buffer.data(), buffer.data(), buffer.size(), data_type_of<T>(), options);
  }
  template <class T>
  Work all_reduce_async(std::vector<T>& buffer, const CallOptions& options = {}) {
    return all_reduce_async(std::span<T>(buffer), options);
  }

  // Collectives that only move data take elements of any size: pass DataType::uint8 and the size in bytes as count. The
  // templates below do this for a trivially copyable T without a DataType.
  template <class T>
  void broadcast(std::span<T> buffer, const CallOptions& options = {}) {
    const Moved elements = moved<T>(buffer.size());
    broadcast(buffer.data(), elements.count, elements.type, options);
  }
  template <class T>
  void broadcast(std::vector<T>& buffer, const CallOptions& options = {}) {
    broadcast(std::span<T>(buffer), options);
  }
  // `output` has size() times as many elements as `input`; otherwise throws invalid_argument.
  template <class T>
  void all_gather(std::span<const T> input, std::span<T> output, const CallOptions& options = {}) {
    check_parts(output.size(), input.size());
    const Moved elements = moved<T>(input.size());
    all_gather(input.data(), output.data(), elements.count, elements.type, options);
  }
  template <class T>
  void all_gather(const std::vector<T>& input, std::vector<T>& output, const CallOptions& options = {}) {
    all_gather(std::span<const T>(input), std::span<T>(output), options);
  }

  // The root's `output` has size() times as many elements as `input`; other ranks' is not written and may be empty.
  template <class T>
  void gather(std::span<const T> input, std::span<T> output, const CallOptions& options = {}) {
    if (rank() == options.root) check_parts(output.size(), input.size());
    const Moved elements = moved<T>(input.size());
    gather(input.data(), output.data(), elements.count, elements.type, options);
  }
  template <class T>
  void gather(const std::vector<T>& input, std::vector<T>& output, const CallOptions& options = {}) {
    gather(std::span<const T>(input), std::span<T>(output), options);
  }
  // The root's `input` has size() times as many elements as `output`; other ranks' is not read and may be empty.
  template <class T>
  void scatter(std::span<const T> input, std::span<T> output, const CallOptions& options = {}) {
    if (rank() == options.root) check_parts(input.size(), output.size());
    const Moved elements = moved<T>(output.size());
    scatter(input.data(), output.data(), elements.count, elements.type, options);
  }
  template <class T>
  void scatter(const std::vector<T>& input, std::vector<T>& output, const CallOptions& options = {}) {
    scatter(std::span<const T>(input), std::span<T>(output), options);
  }
  // `input` and `output` have a part for each rank, all of the same size.
  template <class T>
  void all_to_all(std::span<const T> input, std::span<T> output, const CallOptions& options = {}) {
    const std::size_t part = input.size() / static_cast<std::size_t>(size());
    check_parts(input.size(), part);
    check_parts(output.size(), part);
    const Moved elements = moved<T>(part);
    all_to_all(input.data(), output.data(), elements.count, elements.type, options);
  }
  template <class T>
  void all_to_all(const std::vector<T>& input, std::vector<T>& output, const CallOptions& options = {}) {
    all_to_all(std::span<const T>(input), std::span<T>(output), options);
  }

  template <class T>
  void send(const std::vector<T>& data, int to, const MessageOptions& options = {}) {
    const Moved elements = moved<T>(data.size());
    send(data.data(), elements.count, elements.type, to, options);
  }
  template <class T>
  int recv(std::vector<T>& data, int from, const MessageOptions& options = {}) {
    const Moved elements = moved<T>(data.size());
    return recv(data.data(), elements.count, elements.type, from, options);
  }
  template <class T>
  Work send_async(const std::vector<T>& data, int to, const MessageOptions& options = {}) {
    const Moved elements = moved<T>(data.size());
    return send_async(data.data(), elements.count, elements.type, to, options);
  }
  template <class T>
  Work recv_async(std::vector<T>& data, int from, const MessageOptions& options = {}) {
    const Moved elements = moved<T>(data.size());
    return recv_async(data.data(), elements.count, elements.type, from, options);
  }
  template <class T>
  int sendrecv(const std::vector<T>& out, int to, std::vector<T>& in, int from, const MessageOptions& options = {}) {
    const Moved outgoing = moved<T>(out.size());
    const Moved incoming = moved<T>(in.size());
    return sendrecv({out.data(), outgoing.count, outgoing.type, to}, {in.data(), incoming.count, incoming.type, from},
                    options);
  }

  // Makes a group of `ranks` (ranks of this group, in their new order). Every rank in `ranks` calls it with the same
  // list and name; other ranks need not. The n-th call with a list and name on one rank matches the n-th on the others.
  // The new group begins with the job's settings. Collective over the new group; blocks until all its ranks have
  // called, at most for the init timeout. Throws invalid_argument if the list does not contain this rank, or if it
  // contains a rank twice or one that does not exist. If this group has failed, subgroup(), split() and dup() throw
  // that failure; after the loss of ranks outside the list, the listed ranks can still make a group. All three throw
  // misuse between group_start() and group_end(). A request of `stop`, from any thread, ends the call, here and on the
  // other ranks of the list, with Error(aborted); this group stays usable.
  Communicator subgroup(const std::vector<int>& ranks, const std::string& name, const std::stop_token& stop = {});
  // The group of all ranks that gave the same colour, ordered by key; ranks with equal keys keep their order. Empty for
  // a rank with a negative colour. The new group begins with the job's settings. Collective over this group, and
  // numbered in its sequence.
  std::optional<Communicator> split(int colour, int key = 0);
  // A group of the same ranks and settings with a sequence of its own. Collective over this group.
  Communicator dup();

  // After a failure: a group of the members that live, in their old order, with this group's settings. All members that
  // live call it; all that return have the same members, whatever dies or stops meanwhile. Members lost so far are left
  // out; one that is lost while the call returns may still be in the new group, whose calls then fail: shrink that one.
  // With ShrinkOptions::without also without a failure; wait for this group's operations first. Blocks until all living
  // members have called, at most for the timeout; one that stops is waited for for ShrinkOptions::patience. Ends this
  // group: later calls throw Error(aborted), or its first failure. Connections with a lost member that may still run
  // are closed; when it goes on, its calls of this group throw Error(aborted) that names those that went on without it.
  // Throws:
  //   invalid_argument    `without` names this rank, or a rank twice or that does not exist.
  //   misuse              Members gave different `without` or `quorum`, two threads call, or between group_start() and
  //                       group_end(). Call it again.
  //   aborted             Too few members are left (see Quorum), or the others went on without this rank. Final.
  //   deadline_exceeded   Members that live have not called. May be called again.
  Communicator shrink(const ShrinkOptions& options = {});
  // The lost members that this rank knows of, by rank. More may have been lost; shrink() finds them.
  std::vector<LostRank> failed() const;
  // A Work that ends with the group's first failure, even while this rank makes no call, or without error when this
  // rank closes the group. It has no number.
  Work when_failed() const;

  // A group of this one's members, with their ranks, and of the newcomers that wait at their doors, with the ranks
  // after them: see growth.h. It is a job of its own with this group's compression and timeout; this group stays as it
  // is. Without newcomers it is this group. Collective over this group; blocks until all that are taken in are
  // connected, at most for timeout and patience. The options are the same on all ranks. Throws:
  //   invalid_argument    The options are wrong.
  //   misuse              No member is open. Or between group_start() and group_end().
  //   deadline_exceeded   Fewer newcomers than GrowOptions::at_least came. The group stays usable.
  //   aborted, peer_lost, deadline_exceeded
  //                       Members and newcomers could not connect with each other, three times. The group stays usable.
  //   any other           This group was lost: shrink it first.
  Communicator grow(const GrowOptions& options = {});
  // Where newcomers find this rank, for QCCL_JOIN: "10.0.0.1:40000", or several addresses with commas; "" if it is not
  // open.
  std::string door() const;

  // `count` elements of zeroed memory that all ranks of this group on one host map. An all_reduce in place on it, or on
  // the same part of it on every rank, reduces it where it lies, several times as fast if all ranks run on one host; in
  // a group on several hosts, hierarchical and SRA send none of it inside a host. Until such a call has ended on all
  // ranks, even with an error, other ranks write to the memory. If the memory cannot be shared, it is ordinary memory
  // (QCCL_LOG=warning says why). All ranks pass it to a call or none does; if only some ranks pass it, the call fails
  // on all of them. Blocking, and collective over the group: if ranks ask for different sizes, all get
  // invalid_argument; if one rank cannot get its memory, all get resource_exhausted.
  template <class T>
  SharedBuffer<T> allocate(std::size_t count) {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    return {allocate_bytes(count <= kMost / sizeof(T) ? count * sizeof(T) : kMost), count};
  }
  std::shared_ptr<void> allocate_bytes(std::size_t bytes);

  // Opens `bytes` of this rank's memory for the other ranks to write into: see window.h. Ranks may give different
  // sizes, none among them; they learn each other's, and a label that each may choose. The memory stays the caller's,
  // and valid until the window is closed. Blocking, and collective over the group.
  Window open_window(void* memory, std::size_t bytes, std::uint64_t label = 0);

  // Compression of later calls that do not set their own. The same on all ranks.
  void set_compression(const Compression& compression);
  Compression compression() const;
  // Timeout of later calls that do not set their own.
  void set_timeout(Milliseconds timeout);
  Milliseconds timeout() const;

  // The compression and, below, the algorithm that a call would use now, for reports. They follow the rules about
  // collective, size, type and operation (automatic: the fastest so far); without a collective, those of an all_reduce.
  // Local. Throws what the call itself would for wrong or unsupported arguments.
  Compression effective_compression(Collective collective, std::size_t count, DataType type,
                                    const CallOptions& = {}) const;
  Compression effective_compression(std::size_t count, DataType type, const CallOptions& = {}) const;
  Algorithm effective_algorithm(Collective collective, std::size_t count, DataType type, const CallOptions& = {}) const;
  // Why that algorithm was chosen, for people: "hierarchical, 35.3 ms: saves 65 % of the time of sra (one_shot 1.2 s,
  // ...)".
  std::string explain_algorithm(Collective collective, std::size_t count, DataType type, const CallOptions& = {}) const;

  // The world rank of each rank of the group.
  std::vector<int> world_ranks() const;
  // The host of each rank of the group, as the world rank of the first rank on it.
  std::vector<int> hosts() const;
  // This rank's traffic in all groups of this context.
  Traffic traffic() const;
  // The log of all groups of this context.
  OperationLog log() const;
  // A description for people: "rank 1 of 4 from torchrun, shm to ranks 0, 2, 3, paced at 1 Gbit/s"; for a group of some
  // of the ranks "rank 0 of 2 in group 'pair' (rank 1 of 4 from torchrun), shm to rank 3". Peers have world ranks, as
  // in errors.
  std::string describe() const;
  // This group's unfinished operations, oldest first, for reports of hangs: "all_reduce(...) #3 waits for rank 2 (got 0
  // of 4096 bytes)". Any thread may call it, even while others wait.
  std::vector<std::string> in_flight() const;
  // What Work::block() does to streams of the device. `host` where QCCL_STREAM_ORDER says so, and where streams that
  // wait would hold up other work of the device: the first question tries that, which takes two seconds at most. Throws
  // Error: unsupported without a driver, invalid_argument if there is no such device.
  StreamOrder stream_order(int device) const;

  // Ends every operation of this group with Error(aborted), here and, by a poison message, on the other ranks. Later
  // calls throw the same error. Returns when the library uses none of the caller's memory any more.
  void abort(const std::string& reason);
  // Leaves the group: waits for this rank's operations, each of which ends by its timeout, or by abort() in another
  // thread. Connections close once every communicator of the context is closed or destroyed. Later calls throw misuse.
  void close();

 private:
  // Throws invalid_argument unless `whole` elements are one `part` for every rank.
  void check_parts(std::size_t whole, std::size_t part) const;

  std::shared_ptr<internal::CommunicatorState> state_;
};

// Joins the job and returns the group of all ranks ("world"). Collective over all ranks; blocks until all of them have
// called, at most for the init timeout. Ranks come from the options, else from a launcher's variables (RANK,
// WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun and `qccl run` set them, or those in docs/launchers.md), else
// this process is alone (world of 1). With InitOptions::join the group is that to which an open job has grown. Throws
// Error: deadline_exceeded names the ranks that are missing, peer_lost one that ended meanwhile; invalid_argument,
// misuse and unsupported name options, variables or settings that are wrong or that differ between ranks.
Communicator init(const InitOptions& options = {});

// The release, as in CHANGELOG.md: "MAJOR.MINOR.PATCH".
const char* version();

}  // namespace qccl
