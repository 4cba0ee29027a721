// The state of the ranks on this host, queried from outside: `qccl ps` prints it.
//
// Every rank answers on an abstract unix socket. The answering thread sleeps until a query arrives, and answers even
// while the rank waits in a call. Nothing is written without a query, and nothing stays behind when a rank ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qccl/communicator.h"

namespace qccl {

// A call that has been posted and has not ended.
struct CallStatus {
  std::string group;                 // the group's name
  std::uint64_t number = 0;          // the call's number in its group, from 1; messages are numbered apart
  std::string call;                  // "all_reduce(count=1024, float32, sum, ...)"
  double seconds = 0;                // since it was posted
  std::vector<int> waits_for;        // world ranks: the silent ones, if there are any; else those yet to send
  std::uint64_t received_bytes = 0;  // so far
  std::uint64_t expected_bytes = 0;  // in all
};

// A group of a rank.
struct GroupStatus {
  std::string name;         // "world", or the name that it was made with
  std::uint64_t calls = 0;  // collectives posted so far
  std::string failure;      // empty: no failure
};

// What a rank says of itself.
struct RankStatus {
  int process = 0;                  // its process number
  int rank = 0;                     // in the job
  int world = 1;                    // number of ranks of the job
  std::uint32_t user = 0;           // owner of the process, according to the kernel
  std::string job;                  // the same for all ranks of a job, and different for other jobs
  char state = '?';                 // as in /proc: R runs, S sleeps, T is stopped, ...
  bool answered = false;            // false: the rest is empty; the rank is stopped, or too busy to answer
  std::vector<GroupStatus> groups;  // in the order in which they were made
  std::vector<CallStatus> calls;    // oldest first
};

// All ranks of this user (of all users, for root) in this network namespace, ordered by user, job and rank: 1024 at
// most, this user's before others'. Takes milliseconds, plus `patience` for each batch of 128 in which some do not
// answer. Ignores a socket whose creator is not the user in its name. All text is printable: a blank replaces each
// control character. An answer of more than 256 KiB counts as none, as do answers beyond 16 MiB together. Throws
// Error(resource_exhausted) if there are no descriptors left.
std::vector<RankStatus> ranks_on_this_host(Milliseconds patience = Milliseconds(1000));

}  // namespace qccl
