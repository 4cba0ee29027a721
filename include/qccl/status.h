// The state of ranks, queried from outside or inside: `qccl ps` prints it, metrics and pages are made of it.
//
// Every rank answers on an abstract unix socket. The answering thread sleeps until a query arrives, and answers even
// while the rank waits in a call. One rank collects the state of all over the connections that the ranks have. Nothing
// is written without a query, and nothing stays behind when a rank ends.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "qccl/communicator.h"

namespace qccl {

// A call that has been posted and has not ended.
struct CallStatus {
  std::string group{};
  std::string group_id{};    // hexadecimal; the same on all members
  std::uint64_t number = 0;  // the call's number in its group, from 1; messages are numbered apart
  bool is_message = false;
  std::string operation{};       // "all_reduce", "send", ...
  std::string call{};            // "all_reduce(count=1024, float32, sum, ...)"
  std::uint64_t bytes = 0;       // of this rank's input
  double seconds = 0;            // since it was posted
  std::vector<int> waits_for{};  // world ranks: the silent ones, if there are any; else those yet to send
  std::uint64_t received_bytes = 0;
  std::uint64_t expected_bytes = 0;
};

struct GroupStatus {
  std::string name{};
  std::string id{};
  std::uint64_t calls = 0;  // collectives posted so far, the library's own among them
  std::string failure{};    // empty: no failure
};

// The call that ended last on a rank.
struct EndedCall {
  std::string group{};
  std::uint64_t number = 0;
  std::string operation{};  // empty: none has ended
  double seconds = 0;       // since its end
};

// The ended calls of one kind in all groups of one name, since this rank joined. The library's own calls do not count.
struct CallCounters {
  std::string group{};
  int group_size = 1;
  std::string operation{};
  std::uint64_t calls = 0;          // that ended well
  std::uint64_t failures = 0;       // that did not
  std::uint64_t bytes = 0;          // of this rank's inputs
  std::uint64_t payload_bytes = 0;  // data that this rank sent, without headers
  std::uint64_t plain_bytes = 0;    // size of the same data uncompressed
  double seconds = 0;               // from post to end, summed; for the shortest calls, estimated from every 64th
};

// The TCP connections to a peer, as the system counts.
struct LineStatus {
  int peer = -1;  // world rank
  std::uint64_t acknowledged_bytes = 0;
  std::uint64_t resent_packets = 0;
  double busy_seconds = 0;        // while bytes were on their way
  double round_trip_seconds = 0;  // the shortest measured; 0 on this host

  double bytes_per_second() const {
    return busy_seconds > 0 ? static_cast<double>(acknowledged_bytes) / busy_seconds : 0;
  }
};

struct RankStatus {
  int process = 0;
  int rank = 0;
  int world = 1;
  std::uint32_t user = 0;  // owner of the process, according to the kernel
  std::string job{};       // the same for all ranks of a job, and different for other jobs
  char state = '?';        // as in /proc: R runs, S sleeps, T is stopped, ...; ? if the rank is not on this host
  bool answered = false;   // false: the rest is empty; the rank is stopped, or too busy to answer
  std::string host{};
  std::string absence{};  // of a rank that did not answer, as a peer sees it: "was lost: end of file"
  std::vector<GroupStatus> groups{};
  std::vector<CallStatus> calls{};  // oldest first
  EndedCall last{};

  // ---- since this rank joined the job
  double seconds = 0;             // the time itself
  double busy_seconds = 0;        // with at least one call under way
  std::uint64_t sent_bytes = 0;   // in all groups, with headers; in calls that have not ended, too
  std::uint64_t saved_bytes = 0;  // by compression
  std::uint64_t resent_packets = 0;
  std::vector<CallCounters> counters{};  // of kinds that were called
  std::vector<LineStatus> lines{};       // to peers by TCP, the slowest first
  std::vector<std::string> warnings{};   // failures of groups, lines that lose packets
};

// Calls visit(name, field) for each field but the lists of structures; files have the same names and order.
template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, CallStatus>
void visit_fields(Record& call, Visit visit) {
  visit("group", call.group);
  visit("group_id", call.group_id);
  visit("number", call.number);
  visit("is_message", call.is_message);
  visit("operation", call.operation);
  visit("call", call.call);
  visit("bytes", call.bytes);
  visit("seconds", call.seconds);
  visit("waits_for", call.waits_for);
  visit("received_bytes", call.received_bytes);
  visit("expected_bytes", call.expected_bytes);
}
template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, GroupStatus>
void visit_fields(Record& group, Visit visit) {
  visit("name", group.name);
  visit("id", group.id);
  visit("calls", group.calls);
  visit("failure", group.failure);
}
template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, EndedCall>
void visit_fields(Record& last, Visit visit) {
  visit("group", last.group);
  visit("number", last.number);
  visit("operation", last.operation);
  visit("seconds", last.seconds);
}
template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, CallCounters>
void visit_fields(Record& counters, Visit visit) {
  visit("group", counters.group);
  visit("group_size", counters.group_size);
  visit("operation", counters.operation);
  visit("calls", counters.calls);
  visit("failures", counters.failures);
  visit("bytes", counters.bytes);
  visit("payload_bytes", counters.payload_bytes);
  visit("plain_bytes", counters.plain_bytes);
  visit("seconds", counters.seconds);
}
template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, LineStatus>
void visit_fields(Record& line, Visit visit) {
  visit("peer", line.peer);
  visit("acknowledged_bytes", line.acknowledged_bytes);
  visit("resent_packets", line.resent_packets);
  visit("busy_seconds", line.busy_seconds);
  visit("round_trip_seconds", line.round_trip_seconds);
}
template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, RankStatus>
void visit_fields(Record& rank, Visit visit) {
  visit("process", rank.process);
  visit("rank", rank.rank);
  visit("world", rank.world);
  visit("user", rank.user);
  visit("job", rank.job);
  visit("state", rank.state);
  visit("answered", rank.answered);
  visit("host", rank.host);
  visit("absence", rank.absence);
  visit("seconds", rank.seconds);
  visit("busy_seconds", rank.busy_seconds);
  visit("sent_bytes", rank.sent_bytes);
  visit("saved_bytes", rank.saved_bytes);
  visit("resent_packets", rank.resent_packets);
  visit("warnings", rank.warnings);
}
// Calls visit(name, list) for each list of structures.
template <class Rank, class Visit>
void visit_lists_of(Rank& rank, Visit visit) {
  visit("groups", rank.groups);
  visit("calls", rank.calls);
  visit("counters", rank.counters);
  visit("lines", rank.lines);
}

// A job as one of its ranks sees it.
struct JobStatus {
  std::string job{};
  std::uint32_t user = 0;
  std::vector<RankStatus> ranks{};  // all ranks of the job, by rank; those that did not answer say why
};

// All ranks of this user (of all users, for root) in this network namespace, ordered by user, job and rank: 1024 at
// most, this user's before others'. Takes milliseconds, plus `patience` for each batch of 128 in which some do not
// answer. Ignores a socket whose creator is not the user in its name. All text is printable: a blank replaces each
// control character. An answer of more than 256 KiB counts as none, as do answers beyond 16 MiB together. Throws
// Error(resource_exhausted) if there are no descriptors left.
std::vector<RankStatus> ranks_on_this_host(Milliseconds patience = Milliseconds(1000));

// The jobs of `local`, which ranks_on_this_host() gave, each whole: a rank on this host asks all others over the
// connections that they have. Takes up to `patience` for each job in which some do not answer. A job whose ranks here
// do not answer has these only.
std::vector<JobStatus> whole_jobs(const std::vector<RankStatus>& local, Milliseconds patience = Milliseconds(1000));

// Who keeps others waiting, from the states of a job's ranks.
struct HoldUp {
  int rank = -1;               // the rank; -1: no rank holds others up, or no single one
  std::vector<int> waiting{};  // those that wait for it, directly or not
  double seconds = 0;          // for how long the first of them has waited
  // "12 ranks wait for rank 7, which has not called all_reduce #4711 of 'world'; its last call ended 8.2 s ago". Empty:
  // nobody waits.
  std::string text{};
};
// Calls younger than `least_seconds` do not count.
HoldUp find_hold_up(std::span<const RankStatus> ranks, double least_seconds = 0.25);

// JSON, one object for a rank, or a list of jobs: {"job": ..., "user": ..., "hold_up": {...}, "ranks": [...]}.
std::string to_json(const RankStatus& rank);
std::string to_json(std::span<const JobStatus> jobs);
// The counters in Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats/), with HELP and
// TYPE lines. Labels: those of NCCL's Inspector where it has them.
std::string to_prometheus(std::span<const RankStatus> ranks);

}  // namespace qccl
