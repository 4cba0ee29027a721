// The ranks of a job meet through a Store: each leaves a card (how to reach it), and all get all cards.
//
// A store may outlive an attempt to start a job, and hold keys of earlier attempts. So every attempt is a generation
// with keys of its own (protocol/keys.h), opened by rank 0.
//
// Rank 0 closes the previous generation when it opens one, waits for all cards and writes them as one value. The others
// join the newest generation if it is open, else wait for the next, and start again after a superseded one. Every wait
// is for one key and ends at the deadline. A rank that gives up closes the generation with the reason, so that no rank
// waits in vain. Ranks other than 0 leave a will (pipelined_store.h): if their process ends, it closes the generation
// and says so. Rank 0 leaves none: another process may take its place, so the others wait until the deadline.
//
// Every process that reaches the store can also write to it. A claim without a card and a close without an outcome
// count for nothing (their writers were no ranks, or have died where the store knows no wills), invalid records and
// outcomes are refused, and messages that quote text from the store say so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/meeting/card_seal.h"
#include "bootstrap/protocol/formats.h"
#include "bootstrap/protocol/key_space.h"

namespace qccl::bootstrap {

// Limit of the whole start-up; `timeout` is the duration that messages quote.
struct StartLimit {
  const Clock* clock = nullptr;
  TimePoint deadline = kForever;
  Nanoseconds timeout{};
};

struct Participant {
  int rank = 0;
  int world = 1;
  std::string process;   // for messages: "process 123 on node0"; at most kMaxProcessBytes
  std::string card;      // at most kMaxCardBytes
  std::string location;  // of the store, for messages: "at 127.0.0.1:29500"
  CardSeal seal{};
};

struct GatheredCards {
  std::uint64_t generation = 0;
  std::uint64_t nonce = 0;             // random, the same on all ranks
  std::vector<std::string> cards;      // by rank
  std::vector<std::string> processes;  // by rank
};

// Blocks until all ranks have arrived. DeadlineExceeded names the missing ranks; Misuse: another process has this rank;
// InvalidArgument: ranks disagree about the world size, or have different keys; else the store's error.
Result<GatheredCards> gather_cards(KeySpace& keys, const Participant& self, const StartLimit& limit);

// report_failure() tells the ranks of a generation that this one failed after the cards were exchanged, best effort.
// reported_failure() returns the first such report.
void report_failure(KeySpace& keys, std::uint64_t generation, const ErrorInfo& failure);
Result<std::optional<std::string>> reported_failure(KeySpace& keys, std::uint64_t generation);

// Text that another rank left in the store, made printable, with a note of its origin.
std::string quote_store(const std::string& text, const std::string& location);

// ---- failures of the start-up, and text for ranks and times in their messages

// The same failure with this rank named, also at the beginning of its message: "rank 0 of 4: ".
Failure named(int rank, int world, ErrorInfo info);
Failure failure_about(ErrorKind kind, int peer, std::string message);
// "rank 2", "ranks 2, 3", "ranks 1-511"; runs of three or more are folded.
std::string ranks_text(const std::vector<int>& ascending_ranks);
// "process 123 on node0".
std::string own_process_text();

}  // namespace qccl::bootstrap
