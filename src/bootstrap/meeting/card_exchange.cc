#include "bootstrap/meeting/card_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "bootstrap/meeting/generation_result.h"
#include "bootstrap/meeting/rank_text.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

constexpr Nanoseconds kLookForClosedEvery = std::chrono::seconds(1);
constexpr Nanoseconds kShortWait = std::chrono::seconds(1);  // for a value that another rank is writing
constexpr int kMaxLostConnections = 3;

// Empty: the generation was superseded, start again.
using AttemptResult = Result<std::optional<GatheredCards>>;

std::string generation_key(std::uint64_t generation, const char* name) {
  return fmt::format("{}/{}", generation, name);
}

Failure failure_about(ErrorKind kind, int peer, std::string message) {
  Failure failure(kind, std::move(message));
  failure.info().peer = peer;
  return failure;
}

// One attempt to get through a generation.
class Attempt {
 public:
  Attempt(KeySpace& keys, const Participant& self, const StartLimit& limit, std::uint64_t token)
      : keys_(keys), self_(self), limit_(limit), token_(token) {}

  AttemptResult lead();
  AttemptResult join();

 private:
  std::string key(const char* name) const { return generation_key(generation_, name); }
  std::string key(const char* name, int rank) const { return fmt::format("{}/{}/{}", generation_, name, rank); }
  Record own_record() const { return {static_cast<std::uint32_t>(self_.world), token_, self_.process, self_.card}; }

  // Used by rank 0.
  Result<std::string> await_record(int rank);
  Result<bool> is_closed();
  Result<bool> has_outcome(std::uint64_t generation);
  Failure closed_by_another();

  // Used by the other ranks.
  Status find_generation();
  Status claim_rank();
  Failure rank_taken(const std::string& process) const;

  Result<bool> close(std::uint64_t generation, const GenerationResult& outcome);
  AttemptResult finish(GenerationResult outcome);
  Failure give_up(ErrorKind kind, int peer, const std::string& reason);
  Failure give_up_waiting();
  Result<std::vector<int>> ranks_without_card();
  TimePoint soon() const { return saturating_add(limit_.clock->now(), kShortWait); }
  bool out_of_time() const { return limit_.clock->now() >= limit_.deadline; }

  KeySpace& keys_;
  const Participant& self_;
  const StartLimit& limit_;
  std::uint64_t token_;
  std::uint64_t generation_ = 0;
};

AttemptResult Attempt::lead() {
  auto generation = keys_.add("generation", 1);
  if (!generation) return generation.failure();
  generation_ = static_cast<std::uint64_t>(*generation);
  if (generation_ > 1) {
    auto closed = close(generation_ - 1, {.kind = GenerationResult::Kind::superseded, .reason = self_.process});
    if (!closed) return closed.failure();
  }
  QCCL_TRY(keys_.set(key("open"), self_.process));

  GenerationResult outcome{.kind = GenerationResult::Kind::complete, .nonce = os::random_nonce()};
  outcome.records.push_back(encode_record(own_record()));
  for (int rank = 1; rank < self_.world; ++rank) {
    auto record = await_record(rank);
    if (!record) return record.failure();
    outcome.records.push_back(std::move(*record));
  }
  auto first = close(generation_, outcome);
  if (!first) return first.failure();
  if (!*first) return closed_by_another();
  return finish(std::move(outcome));
}

Result<std::string> Attempt::await_record(int rank) {
  for (;;) {
    const TimePoint look_again = saturating_add(limit_.clock->now(), kLookForClosedEvery);
    auto value = keys_.get(key("card", rank), std::min(limit_.deadline, look_again));
    if (!value) return value.failure();
    if (*value) {
      auto record = decode_record(**value);
      if (!record) return record.failure();
      if (record->world == static_cast<std::uint32_t>(self_.world)) return std::move(**value);
      return give_up(ErrorKind::invalid_argument, rank,
                     fmt::format("the world size is {} on rank {} ({}) but {} on rank 0: give all the same WORLD_SIZE",
                                 record->world, rank, record->process, self_.world));
    }
    auto closed = is_closed();
    if (!closed) return closed.failure();
    if (*closed) return closed_by_another();
    if (out_of_time()) return give_up_waiting();
  }
}

Result<bool> Attempt::is_closed() {
  auto closers = keys_.add(key("closed"), 0);
  if (!closers) return closers.failure();
  if (*closers == 0) return false;
  return has_outcome(generation_);
}

// For a generation that some rank has closed. The rank may still be writing the outcome.
Result<bool> Attempt::has_outcome(std::uint64_t generation) {
  auto value = keys_.get(generation_key(generation, "outcome"), soon());
  if (!value) return value.failure();
  return value->has_value();
}

// For rank 0, which expected to close the generation itself.
Failure Attempt::closed_by_another() {
  auto value = keys_.get(key("outcome"), soon());
  if (!value) return value.failure();
  auto outcome = decode_outcome(value->value_or(""));
  if (!outcome) return outcome.failure();
  if (outcome->kind == GenerationResult::Kind::failed)
    return Failure(outcome->error, as_read(outcome->reason, self_.location));
  return failure_about(ErrorKind::misuse, 0, rank_taken(outcome->reason).info().message);
}

AttemptResult Attempt::join() {
  QCCL_TRY(find_generation());
  QCCL_TRY(claim_rank());
  auto value = keys_.get(key("outcome"), limit_.deadline);
  if (!value) return value.failure();
  if (!*value) return give_up_waiting();
  auto outcome = decode_outcome(**value);
  if (!outcome) return outcome.failure();
  return finish(std::move(*outcome));
}

// The newest generation if it is open, else the next.
Status Attempt::find_generation() {
  auto newest = keys_.add("generation", 0);
  if (!newest) return newest.failure();
  generation_ = static_cast<std::uint64_t>(*newest);
  if (generation_ > 0) {
    auto closed = is_closed();
    if (!closed) return closed.failure();
    if (!*closed) return {};
  }
  ++generation_;
  auto open = keys_.get(key("open"), limit_.deadline);
  if (!open) return open.failure();
  if (*open) return {};
  return failure_about(ErrorKind::deadline_exceeded, 0,
                       fmt::format("rank 0 did not appear within {} {}: check that it runs, with the same job name",
                                   seconds_text(limit_.timeout), self_.location));
}

Status Attempt::claim_rank() {
  auto claims = keys_.add(key("claim", self_.rank), 1);
  if (!claims) return claims.failure();
  std::optional<std::string> card;
  if (*claims > 1) {
    auto value = keys_.get(key("card", self_.rank), soon());
    if (!value) return value.failure();
    card = std::move(*value);
  }
  if (!card) return keys_.set(key("card", self_.rank), encode_record(own_record()));
  auto holder = decode_record(*card);
  if (!holder) return holder.failure();
  if (holder->token == token_) return {};  // this process, before its connection to the store broke
  return rank_taken(holder->process);
}

Failure Attempt::rank_taken(const std::string& process) const {
  return failure_about(
      ErrorKind::misuse, self_.rank,
      fmt::format("another process ({}) is rank {} of this job too: give each process a RANK of its "
                  "own; after a crash, restart all ranks (or a stranger who reaches the store {} wrote so)",
                  process, self_.rank, self_.location));
}

// True if this call closed the generation, and so decided its outcome.
Result<bool> Attempt::close(std::uint64_t generation, const GenerationResult& outcome) {
  auto closers = keys_.add(generation_key(generation, "closed"), 1);
  if (!closers) return closers.failure();
  if (*closers != 1) {
    auto decided = has_outcome(generation);
    if (!decided) return decided.failure();
    if (*decided) return false;
  }
  QCCL_TRY(keys_.set(generation_key(generation, "outcome"), encode_outcome(outcome)));
  // set() has no answer; the answer to this add() shows that the set has arrived, so that the store may end now.
  auto arrived = keys_.add(generation_key(generation, "closed"), 0);
  if (!arrived) return arrived.failure();
  return true;
}

AttemptResult Attempt::finish(GenerationResult outcome) {
  if (outcome.kind == GenerationResult::Kind::superseded) return std::optional<GatheredCards>();
  if (outcome.kind == GenerationResult::Kind::failed)
    return Failure(outcome.error, as_read(outcome.reason, self_.location));
  if (outcome.records.size() != static_cast<std::size_t>(self_.world)) {
    return failure_about(ErrorKind::invalid_argument, 0,
                         fmt::format("the world size is {} here but {} on rank 0: give all the same WORLD_SIZE",
                                     self_.world, outcome.records.size()));
  }
  GatheredCards gathered{.generation = generation_, .nonce = outcome.nonce, .cards = {}, .processes = {}};
  for (int rank = 0; rank < self_.world; ++rank) {
    auto record = decode_record(outcome.records[static_cast<std::size_t>(rank)]);
    if (!record) return record.failure();
    if (rank == self_.rank && record->token != token_) return rank_taken(record->process);
    gathered.cards.push_back(std::move(record->card));
    gathered.processes.push_back(std::move(record->process));
  }
  return std::optional<GatheredCards>(std::move(gathered));
}

// Closes the generation for all ranks. If that fails, this rank still reports the reason.
Failure Attempt::give_up(ErrorKind kind, int peer, const std::string& reason) {
  GenerationResult outcome{.kind = GenerationResult::Kind::failed, .error = kind};
  outcome.reason = fmt::format("rank {} gave up: {}", self_.rank, reason);
  static_cast<void>(close(generation_, outcome));
  return failure_about(kind, peer, reason);
}

Failure Attempt::give_up_waiting() {
  auto missing = ranks_without_card();
  if (!missing) return missing.failure();
  if (missing->empty()) {
    return give_up(ErrorKind::deadline_exceeded, 0,
                   fmt::format("rank 0 has all ranks' addresses but did not pass them on within {} {}",
                               seconds_text(limit_.timeout), self_.location));
  }
  return give_up(ErrorKind::deadline_exceeded, missing->front(),
                 fmt::format("{} did not appear within {} {}: check that they run, with the same MASTER_ADDR, "
                             "MASTER_PORT and job name",
                             ranks_text(*missing), seconds_text(limit_.timeout), self_.location));
}

Result<std::vector<int>> Attempt::ranks_without_card() {
  std::vector<int> missing;
  for (int rank = 1; rank < self_.world; ++rank) {
    auto value = keys_.get_now(key("card", rank));
    if (!value) return value.failure();
    if (!*value) missing.push_back(rank);
  }
  return missing;
}

// Adds the name of `self` to the failure.
Failure named(const Participant& self, ErrorInfo info) {
  info.rank = self.rank;
  info.message = rank_text(self.rank, self.world) + ": " + info.message;
  return Failure(std::move(info));
}

}  // namespace

Result<GatheredCards> gather_cards(KeySpace& keys, const Participant& self, const StartLimit& limit) {
  const std::uint64_t token = os::random_nonce();
  for (int lost_connections = 0;;) {
    Attempt attempt(keys, self, limit, token);
    auto result = self.rank == 0 ? attempt.lead() : attempt.join();
    if (result.ok() && *result) return std::move(**result);
    if (result.ok()) continue;
    const bool lost = result.error().kind == ErrorKind::peer_lost && ++lost_connections <= kMaxLostConnections;
    if (!lost || limit.clock->now() >= limit.deadline) return named(self, result.error());
  }
}

std::string as_read(const std::string& reason, const std::string& location) {
  return fmt::format("{} (read in the store {}, where a stranger who reaches it can write, too)", printable(reason),
                     location);
}

void report_failure(KeySpace& keys, std::uint64_t generation, const ErrorInfo& failure) {
  static_cast<void>(keys.set(generation_key(generation, "failure"), failure.message.substr(0, kMaxReasonBytes)));
}

Result<std::optional<std::string>> reported_failure(KeySpace& keys, std::uint64_t generation) {
  return keys.get_now(generation_key(generation, "failure"));
}

}  // namespace qccl::bootstrap
