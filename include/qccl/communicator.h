// The C++ API: start with init(), call collectives on the Communicator it returns.
//
//   auto comm = qccl::init();                        // ranks from the environment
//   std::vector<float> gradient = ...;
//   comm.all_reduce(gradient);                       // sum, in place, on every rank
//   comm.all_reduce(gradient, {.op = qccl::ReduceOp::avg,
//                              .compression = qccl::minmax({.bits = 4})});
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "qccl/call.h"
#include "qccl/compression.h"
#include "qccl/device.h"
#include "qccl/error.h"
#include "qccl/failures.h"
#include "qccl/growth.h"
#include "qccl/inside.h"
#include "qccl/log.h"
#include "qccl/named_calls.h"
#include "qccl/store.h"
#include "qccl/types.h"
#include "qccl/work.h"

namespace qccl {

struct RankStatus;

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
  InsideFactory inside{};                       // use_inside() of the group of all ranks; unset: QCCL alone
  // Growing (growth.h). `open`: newcomers may come to this rank's door, at `door_port` of all interfaces (0: any port).
  std::optional<bool> open{};                // QCCL_OPEN, else not
  std::optional<std::uint16_t> door_port{};  // QCCL_DOOR_PORT, else any
  // Instead of rank and world: waits, for the init timeout, until an open job's grow() takes this process in. Doors of
  // members, "10.0.0.1:40000,10.0.0.2:40000", or "store": those listed where the job met (store, or address and port).
  std::string join{};  // QCCL_JOIN, else none
};

// How a call would be made.
struct CallChoice {
  Compression compression{};
  Algorithm algorithm = Algorithm::automatic;
};

// This rank's counters since the communicator's context began.
struct Traffic {
  std::uint64_t payload_bytes_sent = 0;  // codes and data, without frame headers
  std::uint64_t header_bytes_sent = 0;   // frame headers and control frames
  std::uint64_t shared_bytes_sent = 0;   // small operations that peers on this host read from shared memory
};

// A group of ranks with an operation sequence of its own. All members call the same collectives in the same order. A
// handle: copies name the same group. Thread-safe; calls of one group from several threads need an order on which the
// ranks agree. The last handle's destructor waits for the group's operations, each of which ends by its timeout.
class Communicator : public NamedCalls<Communicator> {
 public:
  explicit Communicator(std::shared_ptr<internal::CommunicatorState> state) : state_(std::move(state)) {}

  // This rank's number in the group, from 0; the number of ranks; the group's name, "world" for the first.
  int rank() const;
  int size() const;
  const std::string& name() const;

  // Makes a call: a collective or a message. named_calls.h has a function for each. Blocks until this rank has its
  // result, at most for its timeout (CallOptions::timeout, else the group's); for a message, returns the rank that it
  // came from (a send: -1). With a list, makes all of them as one call, and returns what its last message would.
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
  void run(const CollectiveCall& call);
  void run(std::span<const CollectiveCall> calls);
  int run(const MessageCall& call);
  int run(std::span<const MessageCall> calls);
  // The same without blocking: Work::wait() throws what run() would, except for a wrong call, which throws here.
  // Buffers must stay valid and unmodified until the Work is done. The order of posting is the order of the operations
  // in the group. A rank has at most min(4096, 16384 / size()) collectives of a group in flight: a further call blocks
  // until one of them ends, which each does by its deadline. group_end() and lists keep the same limit and post longer
  // lists in parts. A list has one Work, which ends with the last of its calls and throws the first failure; if one of
  // them is wrong, none is posted.
  Work post(const CollectiveCall& call);
  Work post(std::span<const CollectiveCall> calls);
  Work post(const MessageCall& call);

  // The seconds that the call would take, as the cost model predicts them from the profile (`qccl doctor --measure`),
  // and its compression and algorithm. They follow the rules about collective, size, type and operation (automatic: the
  // fastest so far). explain() says for people why it has that algorithm: "hierarchical, 35.3 ms: saves 65 % of the
  // time of sra (one_shot 1.2 s, ...)". The call's buffers may be null. Local. Throw what the call itself would for
  // wrong or unsupported arguments.
  double estimate(const CollectiveCall& call) const;
  CallChoice choice(const CollectiveCall& call) const;
  std::string explain(const CollectiveCall& call) const;

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

  // From now on another library adds and copies inside the hosts (inside.h), and QCCL carries the rest between hosts,
  // where all ranks of a host send at once and compression applies. For all_reduce, broadcast, reduce_scatter,
  // all_gather and all_to_all of host memory from 64 KiB on (of a rank's pieces together), as single calls with neither
  // counts by rank, nor an algorithm, keep_input or a premul_sum; the last three collectives where all hosts have as
  // many ranks, which follow each other, and error feedback where they have as many. Other calls go QCCL's own way, and
  // so do all where each host has one rank: all ranks make a call alike. Sums are added inside the hosts in the call's
  // type, without error feedback: a rank's residual is that of what it sends between hosts. Works count their calls
  // from 1. If the other library fails, so does this group, two seconds later at most; if this group fails, the other
  // library is told to abort. Groups made of this one have none.
  // Collective over the group, once, before its first call. Throws what the factory throws, Error(misuse) for a second
  // time, and as subgroup() does.
  void use_inside(const InsideFactory& make_inside);

  // Zeroed memory that all ranks of this group on one host map. An all_reduce in place on it, or on
  // the same part of it on every rank, reduces it where it lies, several times as fast if all ranks run on one host; in
  // a group on several hosts, hierarchical and SRA send none of it inside a host. Until such a call has ended on all
  // ranks, even with an error, other ranks write to the memory. If the memory cannot be shared, it is ordinary memory
  // (QCCL_LOG=warning says why). All ranks pass it to a call or none does; if only some ranks pass it, the call fails
  // on all of them. Blocking, and collective over the group: if ranks ask for different sizes, all get
  // invalid_argument; if one rank cannot get its memory, all get resource_exhausted.
  std::shared_ptr<void> allocate_bytes(std::size_t bytes);

  // Compression of later calls that do not set their own. The same on all ranks.
  void set_compression(const Compression& compression);
  Compression compression() const;
  // Timeout of later calls that do not set their own.
  void set_timeout(Milliseconds timeout);
  Milliseconds timeout() const;

  // The world rank of each rank of the group.
  std::vector<int> world_ranks() const;
  // The host of each rank of the group, as the world rank of the first rank on it.
  std::vector<int> hosts() const;
  // This rank's traffic in all groups of this context.
  Traffic traffic() const;
  // This rank's state and counters in all groups of this context (qccl/status.h).
  RankStatus status() const;
  // The same of every rank of the job, by rank, collected now over the ranks' connections. Not collective: the others'
  // programs take no part. Ranks that do not answer within `patience` have RankStatus::answered false.
  std::vector<RankStatus> job_status(Milliseconds patience = Milliseconds(1000)) const;
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

  // For the library's own functions on a group.
  const std::shared_ptr<internal::CommunicatorState>& state() const { return state_; }

 private:
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
