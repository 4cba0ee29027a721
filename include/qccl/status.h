// What the ranks on this host are doing, asked from outside: `qccl ps` prints it.
//
// Every rank answers on an abstract unix socket, from a thread that sleeps until somebody asks, also while it waits in
// a call. Nothing is written while nobody asks, and nothing stays behind when a rank ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qccl/communicator.h"

namespace qccl {

// A call that has been posted and has not ended.
struct CallStatus {
  std::string group;
  std::uint64_t number = 0;    // of the group's collectives, from 1; messages are numbered apart
  std::string call;            // "all_reduce(count=1024, float32, sum, ...)"
  double seconds = 0;          // since it was posted
  std::vector<int> waits_for;  // world ranks: the silent, if there are any; else those that are to send
  std::uint64_t received_bytes = 0;
  std::uint64_t expected_bytes = 0;
};

struct GroupStatus {
  std::string name;
  std::uint64_t calls = 0;  // collectives posted so far
  std::string failure;      // empty: none
};

struct RankStatus {
  int process = 0;
  int rank = 0;
  int world = 1;
  std::uint32_t user = 0;  // whose process it is, by the kernel's word
  std::string job;         // the same for all ranks of a job, and for no other's
  char state = '?';        // as in /proc: R runs, S sleeps, T is stopped, ...
  bool answered = false;   // else the rest is empty: it is stopped, or busy where it can't look
  std::vector<GroupStatus> groups;
  std::vector<CallStatus> calls;  // the oldest first
};

// All ranks of this user (of everybody, for root) in this network namespace, by user, job and rank: 1024 at most, this
// user's before others'. Takes milliseconds; `patience` for each 128 among which some do not answer. What a socket says
// that another user than the one in its name has made is not looked at. All text is fit to print: a blank stands for
// each control character. An answer of more than 256 KiB counts as none, as do those beyond 16 MiB together.
std::vector<RankStatus> ranks_on_this_host(Milliseconds patience = Milliseconds(1000));

}  // namespace qccl
