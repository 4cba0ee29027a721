// Each collective under its own name: functions that make the calls of call.h and run or post them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "qccl/call.h"
#include "qccl/error.h"
#include "qccl/onebit.h"
#include "qccl/types.h"
#include "qccl/work.h"

namespace qccl {

namespace internal {
class CommunicatorState;
std::vector<CollectiveCall> calls_of(Collective collective, std::span<const CallBuffers> buffers, DataType type,
                                     const CallOptions& options);
[[noreturn]] void refuse_parts(const CommunicatorState& group, std::size_t whole, std::size_t part);
}  // namespace internal

class Window;

// `size()` elements of memory from Communicator::allocate(), zeroed. Copies name the same memory, which is freed with
// the last of them.
template <class T>
class SharedBuffer {
 public:
  SharedBuffer(std::shared_ptr<void> memory, std::size_t size) : memory_(std::move(memory)), size_(size) {}
  // The elements; as a range and as a std::span too. Valid as long as a copy lives.
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

// What Communicator inherits. `Group` is Communicator; it has run(), post() and the other functions used here.
//
// Counts are in elements of `type` and, like type and options, the same on all ranks; premul_factor, timeout, log_name
// and awaited may differ. Input and output are the same memory only where a call works in place; otherwise they do not
// overlap. A buffer without elements may be null. Functions without _async block until this rank has its result, at
// most for the call's timeout (CallOptions::timeout, else the group's), and fail as Communicator::run() says. With
// _async they are posted: see Communicator::post().
template <class Group>
class NamedCalls {
 public:
  // One count for each rank.
  using Counts = qccl::Counts;

  // output = input reduced over all ranks. `count` elements each. In place: input == output.
  void all_reduce(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    self().run({Collective::all_reduce, input, output, count, type, std::move(options)});
  }
  Work all_reduce_async(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    return self().post({Collective::all_reduce, input, output, count, type, std::move(options)});
  }
  // Copies the root's buffer of `count` elements to every rank's. With compression the root's own buffer also becomes
  // what the other ranks decode; so does each rank's own part in all_gather.
  void broadcast(void* buffer, std::size_t count, DataType type, CallOptions options = {}) {
    self().run({Collective::broadcast, nullptr, buffer, count, type, std::move(options)});
  }
  Work broadcast_async(void* buffer, std::size_t count, DataType type, CallOptions options = {}) {
    return self().post({Collective::broadcast, nullptr, buffer, count, type, std::move(options)});
  }
  // output (size() * count elements) = every rank's input (count elements), in rank order.
  // In place: input == output + rank() * count elements.
  void all_gather(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    self().run({Collective::all_gather, input, output, count, type, std::move(options)});
  }
  Work all_gather_async(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    return self().post({Collective::all_gather, input, output, count, type, std::move(options)});
  }
  // output (count elements) = this rank's part of the reduction of input (size() * count elements).
  // In place: output == input + rank() * count elements.
  void reduce_scatter(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    self().run({Collective::reduce_scatter, input, output, count, type, std::move(options)});
  }
  Work reduce_scatter_async(const void* input, void* output, std::size_t count, DataType type,
                            CallOptions options = {}) {
    return self().post({Collective::reduce_scatter, input, output, count, type, std::move(options)});
  }
  // Like all_reduce, but only the root gets the output; the other ranks' output is not written and may be null. In
  // place on the root: input == output.
  void reduce(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    self().run({Collective::reduce, input, output, count, type, std::move(options)});
  }
  Work reduce_async(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    return self().post({Collective::reduce, input, output, count, type, std::move(options)});
  }
  // The root's output (size() * count elements) = every rank's input (count elements), in rank
  // order. In place on the root: input == output + root * count elements.
  void gather(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    self().run({Collective::gather, input, output, count, type, std::move(options)});
  }
  Work gather_async(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    return self().post({Collective::gather, input, output, count, type, std::move(options)});
  }
  // output (count elements) = this rank's part of the root's input (size() * count elements).
  // In place on the root: output == input + root * count elements.
  void scatter(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    self().run({Collective::scatter, input, output, count, type, std::move(options)});
  }
  Work scatter_async(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    return self().post({Collective::scatter, input, output, count, type, std::move(options)});
  }
  // output (size() * count elements) = every rank's part for this rank, in rank order; input (as many elements) holds
  // this rank's part for each rank. Not in place.
  void all_to_all(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    self().run({Collective::all_to_all, input, output, count, type, std::move(options)});
  }
  Work all_to_all_async(const void* input, void* output, std::size_t count, DataType type, CallOptions options = {}) {
    return self().post({Collective::all_to_all, input, output, count, type, std::move(options)});
  }
  // Returns once all ranks have called it.
  void barrier(CallOptions options = {}) {
    self().run({.collective = Collective::barrier, .options = std::move(options)});
  }
  Work barrier_async(CallOptions options = {}) {
    return self().post({.collective = Collective::barrier, .options = std::move(options)});
  }

  // The same with one count per rank (0 is allowed) and the parts packed in rank order. `counts` is the same list of
  // size() counts on all ranks; it is copied. In all_to_all_v only each pair must agree: the count one rank sends to a
  // peer is the count the peer receives from it; otherwise the call fails on both and names both counts.
  void all_gather_v(const void* input, void* output, Counts counts, DataType type, CallOptions options = {}) {
    self().run({Collective::all_gather, input, output, 0, type, std::move(options), counts});
  }
  Work all_gather_v_async(const void* input, void* output, Counts counts, DataType type, CallOptions options = {}) {
    return self().post({Collective::all_gather, input, output, 0, type, std::move(options), counts});
  }
  void reduce_scatter_v(const void* input, void* output, Counts counts, DataType type, CallOptions options = {}) {
    self().run({Collective::reduce_scatter, input, output, 0, type, std::move(options), counts});
  }
  Work reduce_scatter_v_async(const void* input, void* output, Counts counts, DataType type, CallOptions options = {}) {
    return self().post({Collective::reduce_scatter, input, output, 0, type, std::move(options), counts});
  }
  void gather_v(const void* input, void* output, Counts counts, DataType type, CallOptions options = {}) {
    self().run({Collective::gather, input, output, 0, type, std::move(options), counts});
  }
  Work gather_v_async(const void* input, void* output, Counts counts, DataType type, CallOptions options = {}) {
    return self().post({Collective::gather, input, output, 0, type, std::move(options), counts});
  }
  void scatter_v(const void* input, void* output, Counts counts, DataType type, CallOptions options = {}) {
    self().run({Collective::scatter, input, output, 0, type, std::move(options), counts});
  }
  Work scatter_v_async(const void* input, void* output, Counts counts, DataType type, CallOptions options = {}) {
    return self().post({Collective::scatter, input, output, 0, type, std::move(options), counts});
  }
  void all_to_all_v(const void* input, Counts sends, void* output, Counts receives, DataType type,
                    CallOptions options = {}) {
    self().run({Collective::all_to_all, input, output, 0, type, std::move(options), sends, receives});
  }
  Work all_to_all_v_async(const void* input, Counts sends, void* output, Counts receives, DataType type,
                          CallOptions options = {}) {
    return self().post({Collective::all_to_all, input, output, 0, type, std::move(options), sends, receives});
  }

  // Several operations of one type as one call with one Work, which ends with the last of them and throws the first
  // failure. If one is wrong, none is posted.
  void all_reduce_coalesced(std::span<const CallBuffers> buffers, DataType type, const CallOptions& options = {}) {
    self().run(internal::calls_of(Collective::all_reduce, buffers, type, options));
  }
  Work all_reduce_coalesced_async(std::span<const CallBuffers> buffers, DataType type,
                                  const CallOptions& options = {}) {
    return self().post(internal::calls_of(Collective::all_reduce, buffers, type, options));
  }
  void all_gather_coalesced(std::span<const CallBuffers> buffers, DataType type, const CallOptions& options = {}) {
    self().run(internal::calls_of(Collective::all_gather, buffers, type, options));
  }
  Work all_gather_coalesced_async(std::span<const CallBuffers> buffers, DataType type,
                                  const CallOptions& options = {}) {
    return self().post(internal::calls_of(Collective::all_gather, buffers, type, options));
  }
  void reduce_scatter_coalesced(std::span<const CallBuffers> buffers, DataType type, const CallOptions& options = {}) {
    self().run(internal::calls_of(Collective::reduce_scatter, buffers, type, options));
  }
  Work reduce_scatter_coalesced_async(std::span<const CallBuffers> buffers, DataType type,
                                      const CallOptions& options = {}) {
    return self().post(internal::calls_of(Collective::reduce_scatter, buffers, type, options));
  }

  // Messages of `count` elements from one rank to another, ordered independently of the collectives: between two ranks
  // the first send of a tag matches the first recv of that tag. If count, type or compression differ, the group fails
  // on all ranks with misuse. A blocking call returns when the message is sent or received, at most after its timeout,
  // and fails as collectives do. A send may end before its recv is called (up to 64 KiB, within a budget), but the
  // caller must not count on that; a send to this rank itself ends when it is received.
  void send(const void* data, std::size_t count, DataType type, int to, MessageOptions options = {}) {
    self().run(MessageCall{data, nullptr, false, count, type, to, std::move(options)});
  }
  Work send_async(const void* data, std::size_t count, DataType type, int to, MessageOptions options = {}) {
    return self().post(MessageCall{data, nullptr, false, count, type, to, std::move(options)});
  }
  // `from` may be kAnySource, which takes the earliest message of that tag. Returns the sender's rank.
  int recv(void* data, std::size_t count, DataType type, int from, MessageOptions options = {}) {
    return self().run(MessageCall{nullptr, data, true, count, type, from, std::move(options)});
  }
  Work recv_async(void* data, std::size_t count, DataType type, int from, MessageOptions options = {}) {
    return self().post(MessageCall{nullptr, data, true, count, type, from, std::move(options)});
  }
  // The message that sendrecv() sends.
  struct Outgoing {
    const void* data;   // what is sent
    std::size_t count;  // elements
    DataType type;
    int to;  // the receiver's rank in the group
  };
  // The message that sendrecv() receives; as for recv(), `from` may be kAnySource.
  struct Incoming {
    void* data;         // where it goes
    std::size_t count;  // elements
    DataType type;
    int from;  // the sender's rank in the group, or kAnySource
  };
  // Sends and receives at the same time, so that ranks may exchange in any pattern. The two buffers do not overlap.
  // The error feedback is the send's. Returns the sender's rank.
  int sendrecv(const Outgoing& out, const Incoming& in, const MessageOptions& options = {}) {
    MessageOptions receiving = options;
    receiving.error_feedback = {};
    const MessageCall both[] = {{out.data, nullptr, false, out.count, out.type, out.to, options},
                                {nullptr, in.data, true, in.count, in.type, in.from, std::move(receiving)}};
    return self().run(std::span<const MessageCall>(both));
  }

  // The same for containers of the listed element types.
  template <class T>
  void all_reduce(std::vector<T>& buffer, CallOptions options = {}) {
    all_reduce(buffer.data(), buffer.data(), buffer.size(), data_type_of<T>(), std::move(options));
  }
  template <class T>
  void all_reduce(std::span<T> buffer, CallOptions options = {}) {
    all_reduce(buffer.data(), buffer.data(), buffer.size(), data_type_of<T>(), std::move(options));
  }
  template <class T>
  Work all_reduce_async(std::span<T> buffer, CallOptions options = {}) {
    return all_reduce_async(buffer.data(), buffer.data(), buffer.size(), data_type_of<T>(), std::move(options));
  }
  template <class T>
  Work all_reduce_async(std::vector<T>& buffer, CallOptions options = {}) {
    return all_reduce_async(std::span<T>(buffer), std::move(options));
  }

  // Collectives that only move data take elements of any size: pass DataType::uint8 and the size in bytes as count. The
  // templates below do this for a trivially copyable T without a DataType.
  template <class T>
  void broadcast(std::span<T> buffer, CallOptions options = {}) {
    const Moved elements = moved<T>(buffer.size());
    broadcast(buffer.data(), elements.count, elements.type, std::move(options));
  }
  template <class T>
  void broadcast(std::vector<T>& buffer, CallOptions options = {}) {
    broadcast(std::span<T>(buffer), std::move(options));
  }
  // `output` has size() times as many elements as `input`; otherwise throws invalid_argument.
  template <class T>
  void all_gather(std::span<const T> input, std::span<T> output, CallOptions options = {}) {
    check_parts(output.size(), input.size());
    const Moved elements = moved<T>(input.size());
    all_gather(input.data(), output.data(), elements.count, elements.type, std::move(options));
  }
  template <class T>
  void all_gather(const std::vector<T>& input, std::vector<T>& output, CallOptions options = {}) {
    all_gather(std::span<const T>(input), std::span<T>(output), std::move(options));
  }

  // The root's `output` has size() times as many elements as `input`; other ranks' is not written and may be empty.
  template <class T>
  void gather(std::span<const T> input, std::span<T> output, CallOptions options = {}) {
    if (self().rank() == options.root) check_parts(output.size(), input.size());
    const Moved elements = moved<T>(input.size());
    gather(input.data(), output.data(), elements.count, elements.type, std::move(options));
  }
  template <class T>
  void gather(const std::vector<T>& input, std::vector<T>& output, CallOptions options = {}) {
    gather(std::span<const T>(input), std::span<T>(output), std::move(options));
  }
  // The root's `input` has size() times as many elements as `output`; other ranks' is not read and may be empty.
  template <class T>
  void scatter(std::span<const T> input, std::span<T> output, CallOptions options = {}) {
    if (self().rank() == options.root) check_parts(input.size(), output.size());
    const Moved elements = moved<T>(output.size());
    scatter(input.data(), output.data(), elements.count, elements.type, std::move(options));
  }
  template <class T>
  void scatter(const std::vector<T>& input, std::vector<T>& output, CallOptions options = {}) {
    scatter(std::span<const T>(input), std::span<T>(output), std::move(options));
  }
  // `input` and `output` have a part for each rank, all of the same size.
  template <class T>
  void all_to_all(std::span<const T> input, std::span<T> output, CallOptions options = {}) {
    const std::size_t part = input.size() / static_cast<std::size_t>(self().size());
    check_parts(input.size(), part);
    check_parts(output.size(), part);
    const Moved elements = moved<T>(part);
    all_to_all(input.data(), output.data(), elements.count, elements.type, std::move(options));
  }
  template <class T>
  void all_to_all(const std::vector<T>& input, std::vector<T>& output, CallOptions options = {}) {
    all_to_all(std::span<const T>(input), std::span<T>(output), std::move(options));
  }

  // Messages of whole vectors, whose sizes are the counts. For a trivially copyable T.
  template <class T>
  void send(const std::vector<T>& data, int to, MessageOptions options = {}) {
    const Moved elements = moved<T>(data.size());
    send(data.data(), elements.count, elements.type, to, std::move(options));
  }
  template <class T>
  int recv(std::vector<T>& data, int from, MessageOptions options = {}) {
    const Moved elements = moved<T>(data.size());
    return recv(data.data(), elements.count, elements.type, from, std::move(options));
  }
  template <class T>
  Work send_async(const std::vector<T>& data, int to, MessageOptions options = {}) {
    const Moved elements = moved<T>(data.size());
    return send_async(data.data(), elements.count, elements.type, to, std::move(options));
  }
  template <class T>
  Work recv_async(std::vector<T>& data, int from, MessageOptions options = {}) {
    const Moved elements = moved<T>(data.size());
    return recv_async(data.data(), elements.count, elements.type, from, std::move(options));
  }
  template <class T>
  int sendrecv(const std::vector<T>& out, int to, std::vector<T>& in, int from, MessageOptions options = {}) {
    const Moved outgoing = moved<T>(out.size());
    const Moved incoming = moved<T>(in.size());
    return sendrecv({out.data(), outgoing.count, outgoing.type, to}, {in.data(), incoming.count, incoming.type, from},
                    std::move(options));
  }

  // See qccl::compressed_allreduce() in onebit.h; the second form works in place.
  void compressed_allreduce(std::span<const float> input, std::span<float> output, std::span<float> worker_error,
                            std::span<float> server_error, const OnebitOptions& options = {}) {
    qccl::compressed_allreduce(self(), {input, output, worker_error, server_error}, options);
  }
  void compressed_allreduce(std::span<float> buffer, std::span<float> worker_error, std::span<float> server_error,
                            const OnebitOptions& options = {}) {
    qccl::compressed_allreduce(self(), {buffer, buffer, worker_error, server_error}, options);
  }
  // See qccl::open_window() in window.h, which defines this function too.
  Window open_window(void* memory, std::size_t bytes, std::uint64_t label = 0);

  // Elements of memory from Communicator::allocate_bytes().
  template <class T>
  SharedBuffer<T> allocate(std::size_t count) {
    constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();
    return {self().allocate_bytes(count <= kMost / sizeof(T) ? count * sizeof(T) : kMost), count};
  }

  // What Communicator::choice() and explain() say of a call; without a collective, of an all_reduce.
  Compression effective_compression(Collective collective, std::size_t count, DataType type,
                                    CallOptions options = {}) const {
    return self().choice({collective, nullptr, nullptr, count, type, std::move(options)}).compression;
  }
  Compression effective_compression(std::size_t count, DataType type, CallOptions options = {}) const {
    return effective_compression(Collective::all_reduce, count, type, std::move(options));
  }
  Algorithm effective_algorithm(Collective collective, std::size_t count, DataType type,
                                CallOptions options = {}) const {
    return self().choice({collective, nullptr, nullptr, count, type, std::move(options)}).algorithm;
  }
  std::string explain_algorithm(Collective collective, std::size_t count, DataType type,
                                CallOptions options = {}) const {
    return self().explain({collective, nullptr, nullptr, count, type, std::move(options)});
  }

 private:
  Group& self() { return static_cast<Group&>(*this); }
  const Group& self() const { return static_cast<const Group&>(*this); }

  // Throws invalid_argument unless `whole` elements are one `part` for every rank.
  void check_parts(std::size_t whole, std::size_t part) const {
    if (whole != part * static_cast<std::size_t>(self().size())) internal::refuse_parts(*self().state(), whole, part);
  }
};

}  // namespace qccl
