// The ranks of a job meet through a Store: each leaves a card (how to reach it), all get all cards.
//
// A store may outlive a job's attempt to start, and hold what earlier attempts left there. So
// every attempt is a generation with keys of its own, opened by rank 0:
//
// | key        | written by            | meaning                                                       |
// |------------|-----------------------|---------------------------------------------------------------|
// | generation | add, by rank 0        | number of the newest generation, from 1                       |
// | G/open     | rank 0                | generation G has begun                                        |
// | G/claim/R  | add, by rank R        | how many processes took rank R in it: more than one is wrong  |
// | G/card/R   | rank R                | its record: world size, token, who it is, its card            |
// | G/closed   | add                   | who makes it 1 writes the outcome                             |
// | G/outcome  | who closed it         | all cards; or why there won't be any; or "superseded"; nobody |
// |            |                       | joins G any more                                              |
// | G/failure  | any rank              | why it failed after the outcome                               |
//
// Rank 0 closes the generation before its own when it opens one, waits for all cards and writes
// them as one value. The others join the newest generation if it is open, else wait for the next,
// and after a superseded one begin again. Every wait is for one key and ends at the deadline; who
// gives up closes the generation with the reason, so that nobody waits for what can't come.
//
// Whoever reaches the store can write, too. A claim that no card follows and a close that no outcome follows count for
// nothing (their writers have died, or never were ranks), what is no record or outcome is refused, and messages that
// were read there say so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/store/key_space.h"

namespace qccl::bootstrap {

inline constexpr std::size_t kMaxCardBytes = 768;
inline constexpr std::size_t kMaxWhoBytes = 128;

// Of the whole start-up; `timeout` is what messages say.
struct StartLimit {
  const Clock* clock = nullptr;
  TimePoint deadline = kForever;
  Nanoseconds timeout{};
};

struct Participant {
  int rank = 0;
  int world = 1;
  std::string who;    // for people: "process 123 on node0"; at most kMaxWhoBytes
  std::string card;   // at most kMaxCardBytes
  std::string place;  // for people: "at 127.0.0.1:29500"
};

struct Assembly {
  std::uint64_t generation = 0;
  std::uint64_t nonce = 0;         // random, the same on all ranks
  std::vector<std::string> cards;  // by rank
  std::vector<std::string> who;    // by rank
};

// Blocks until all ranks have come. DeadlineExceeded names those that have not; Misuse: another
// process has this rank; InvalidArgument: ranks disagree about the world size; else the store's.
Result<Assembly> assemble(KeySpace& keys, const Participant& self, const StartLimit& limit);

// Tells the ranks of a generation that this one failed after the cards were exchanged, best
// effort; and what the first that did so said.
void report_failure(KeySpace& keys, std::uint64_t generation, const ErrorInfo& failure);
Result<std::optional<std::string>> reported_failure(KeySpace& keys, std::uint64_t generation);

// A reason that another rank left in the store, for a message: fit to print, and with where it was read.
std::string as_read(const std::string& reason, const std::string& place);

}  // namespace qccl::bootstrap
