#include "bootstrap/meeting/card_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

constexpr Nanoseconds kLookForClosedEvery = std::chrono::milliseconds(20);
// In stores that know no wills, where a generation seldom ends before its time.
constexpr Nanoseconds kLookRarely = std::chrono::seconds(1);
constexpr Nanoseconds kShortWait = std::chrono::seconds(1);  // for a value that another rank is writing
constexpr int kMaxLostConnections = 3;
constexpr std::uint64_t kFirstGeneration = 1;

// Empty: the generation was superseded, start again.
using AttemptResult = Result<std::optional<GatheredCards>>;

GenerationResult failed_generation(ErrorKind kind, const std::string& reason) {
  return {.kind = GenerationResult::Kind::failed, .error = kind, .reason = reason.substr(0, kMaxReasonBytes)};
}

// One attempt to get through a generation.
class Attempt {
 public:
  Attempt(KeySpace& keys, const Participant& self, const StartLimit& limit, std::uint64_t token)
      : keys_(keys), self_(self), limit_(limit), token_(token) {}

  AttemptResult lead() {
    QCCL_ASSIGN(const auto generation, keys_.add(key("generation"), 1));
    generation_ = static_cast<std::uint64_t>(generation);
    if (generation_ > 1) {
      QCCL_TRY(close(generation_ - 1, {.kind = GenerationResult::Kind::superseded, .reason = self_.process}));
    }
    QCCL_TRY(keys_.set(key("G/open", generation_), self_.process));

    GenerationResult outcome{.kind = GenerationResult::Kind::complete, .nonce = os::random_nonce()};
    outcome.records.push_back(encode_record(own_record()));
    for (int rank = 1; rank < self_.world; ++rank) {
      QCCL_ASSIGN(auto record, await_record(rank));
      outcome.records.push_back(std::move(record));
    }
    QCCL_ASSIGN(const bool closed, close(generation_, outcome));
    if (!closed) return closed_by_another();
    return finish(std::move(outcome));
  }

  AttemptResult join() {
    QCCL_TRY(find_generation());
    const ClaimRequest request{key("G/claim/R", generation_, self_.rank), key("G/card/R", generation_, self_.rank),
                               encode_record(own_record()), key("G/outcome", generation_), will()};
    QCCL_ASSIGN(auto claim, keys_.claim(request, limit_.deadline));
    if (claim.count > 1) {
      QCCL_TRY(claim_again(request));
      QCCL_ASSIGN(claim.awaited, keys_.get(request.awaited_key, limit_.deadline));
    }
    if (!claim.awaited) return give_up_waiting();
    QCCL_ASSIGN(auto outcome, decode_outcome(*claim.awaited));
    return finish(std::move(outcome));
  }

 private:
  Record own_record() const {
    Record record{static_cast<std::uint32_t>(self_.world), token_, self_.process, self_.card};
    record.seal = self_.seal.make(generation_, self_.rank, record);
    return record;
  }

  // For rank 0.
  Result<std::string> await_record(int rank) {
    const Nanoseconds look_every = keys_.knows_wills() ? kLookForClosedEvery : kLookRarely;
    for (;;) {
      QCCL_ASSIGN(auto value,
                  keys_.get(key("G/card/R", generation_, rank), std::min(limit_.deadline, within(look_every))));
      if (value) {
        QCCL_ASSIGN(const auto record, decode_record(*value));
        const Status sealed = self_.seal.check(generation_, rank, record);
        if (!sealed.ok()) return give_up(sealed.error().kind, rank, sealed.error().message);
        if (record.world == static_cast<std::uint32_t>(self_.world)) return std::move(*value);
        return give_up(
            ErrorKind::invalid_argument, rank,
            fmt::format("the world size is {} on rank {} ({}) but {} on rank 0: give all the same WORLD_SIZE",
                        record.world, rank, record.process, self_.world));
      }
      QCCL_ASSIGN(const bool closed, is_closed());
      if (closed) return closed_by_another();
      if (limit_.clock->now() >= limit_.deadline) return give_up_waiting();
    }
  }

  Result<bool> is_closed() {
    QCCL_ASSIGN(const auto closers, keys_.add(key("G/closed", generation_), 0));
    if (closers == 0) return false;
    return has_outcome(generation_);
  }

  // For a generation that some rank has closed. The rank may still be writing the outcome.
  Result<bool> has_outcome(std::uint64_t generation) {
    QCCL_ASSIGN(const auto value, keys_.get(key("G/outcome", generation), within(kShortWait)));
    return value.has_value();
  }

  // Should this process end, the others need not wait until their deadlines.
  Will will() const {
    const std::string reason =
        fmt::format("rank {} ({}) ended before all ranks were connected", self_.rank, self_.process);
    const std::string outcome = encode_outcome(failed_generation(ErrorKind::aborted, reason));
    return {{key("G/failure", generation_), reason},
            {key("G/outcome", generation_), outcome},
            {key("G/closed", generation_), "1"}};
  }

  // For rank 0, which expected to close the generation itself.
  Failure closed_by_another() {
    QCCL_ASSIGN(const auto value, keys_.get(key("G/outcome", generation_), within(kShortWait)));
    QCCL_ASSIGN(const auto outcome, decode_outcome(value.value_or("")));
    if (outcome.kind == GenerationResult::Kind::failed)
      return Failure(outcome.error, quote_store(outcome.reason, self_.location));
    return failure_about(ErrorKind::misuse, 0, rank_taken(outcome.reason).info().message);
  }

  // For the other ranks: the newest generation if it is open, else the next.
  Status find_generation() {
    // Most jobs have one generation: whether it is closed is asked along with its number.
    QCCL_ASSIGN(const auto counters, keys_.counters({key("generation"), key("G/closed", kFirstGeneration)}));
    generation_ = static_cast<std::uint64_t>(counters[0]);
    if (generation_ > 0) {
      const bool is_open = generation_ == kFirstGeneration && counters[1] == 0;
      QCCL_ASSIGN(const bool closed, is_open ? Result<bool>(false) : is_closed());
      if (!closed) return {};
    }
    ++generation_;
    QCCL_ASSIGN(const auto open, keys_.get(key("G/open", generation_), limit_.deadline));
    if (open) return {};
    return failure_about(ErrorKind::deadline_exceeded, 0,
                         fmt::format("rank 0 did not appear within {} {}: check that it runs, with the same job name",
                                     seconds_text(limit_.timeout), self_.location));
  }

  // The rank has been claimed before: by a process that left its card, or did not get that far.
  Status claim_again(const ClaimRequest& request) {
    QCCL_ASSIGN(const auto card, keys_.get(request.card_key, within(kShortWait)));
    if (!card) {
      QCCL_TRY(keys_.leave_will(request.will));
      return keys_.set(request.card_key, request.card);
    }
    QCCL_ASSIGN(const auto holder, decode_record(*card));
    if (holder.token != token_) return rank_taken(holder.process);
    return keys_.leave_will(request.will);  // this process, before its connection to the store broke
  }

  Failure rank_taken(const std::string& process) const {
    return failure_about(
        ErrorKind::misuse, self_.rank,
        fmt::format("another process ({}) is rank {} of this job too: give each process a RANK of its "
                    "own; after a crash, restart all ranks (or a stranger that reaches the store {} wrote this)",
                    process, self_.rank, self_.location));
  }

  // True if this call closed the generation, and so decided its outcome.
  Result<bool> close(std::uint64_t generation, const GenerationResult& outcome) {
    QCCL_ASSIGN(const auto closers, keys_.add(key("G/closed", generation), 1));
    if (closers != 1) {
      QCCL_ASSIGN(const bool decided, has_outcome(generation));
      if (decided) return false;
    }
    QCCL_TRY(keys_.set(key("G/outcome", generation), encode_outcome(outcome)));
    QCCL_TRY(keys_.await_arrival(key("G/closed", generation)));
    return true;
  }

  AttemptResult finish(GenerationResult outcome) {
    if (outcome.kind == GenerationResult::Kind::superseded) return std::optional<GatheredCards>();
    if (outcome.kind == GenerationResult::Kind::failed)
      return Failure(outcome.error, quote_store(outcome.reason, self_.location));
    if (outcome.records.size() != static_cast<std::size_t>(self_.world)) {
      return failure_about(ErrorKind::invalid_argument, 0,
                           fmt::format("the world size is {} here but {} on rank 0: give all the same WORLD_SIZE",
                                       self_.world, outcome.records.size()));
    }
    GatheredCards gathered{.generation = generation_, .nonce = outcome.nonce, .cards = {}, .processes = {}};
    for (int rank = 0; rank < self_.world; ++rank) {
      QCCL_ASSIGN(auto record, decode_record(outcome.records[static_cast<std::size_t>(rank)]));
      const Status sealed = self_.seal.check(generation_, rank, record);
      if (!sealed.ok()) return failure_about(sealed.error().kind, rank, sealed.error().message);
      if (rank == self_.rank && record.token != token_) return rank_taken(record.process);
      gathered.cards.push_back(std::move(record.card));
      gathered.processes.push_back(std::move(record.process));
    }
    return std::optional<GatheredCards>(std::move(gathered));
  }

  // Closes the generation for all ranks. If that fails, this rank still reports the reason.
  Failure give_up(ErrorKind kind, int peer, const std::string& reason) {
    const std::string told = fmt::format("rank {} gave up: {}", self_.rank, reason);
    static_cast<void>(close(generation_, failed_generation(kind, told)));
    return failure_about(kind, peer, reason);
  }

  Failure give_up_waiting() {
    std::vector<int> missing;
    for (int rank = 1; rank < self_.world; ++rank) {
      QCCL_ASSIGN(const auto card, keys_.get(key("G/card/R", generation_, rank), TimePoint{}));
      if (!card) missing.push_back(rank);
    }
    if (missing.empty()) {
      return give_up(ErrorKind::deadline_exceeded, 0,
                     fmt::format("rank 0 has all ranks' addresses but did not pass them on within {} {}",
                                 seconds_text(limit_.timeout), self_.location));
    }
    return give_up(ErrorKind::deadline_exceeded, missing.front(),
                   fmt::format("{} did not appear within {} {}: check that they run, with the same MASTER_ADDR, "
                               "MASTER_PORT and job name{}",
                               ranks_text(missing), seconds_text(limit_.timeout), self_.location, refused_text()));
  }

  // A rank with another key looks like one that never came.
  std::string refused_text() {
    auto refused = keys_.get(key("refused"), TimePoint{});
    if (!refused || !*refused) return "";
    return fmt::format(
        "; the store refused a connection from {}: give all ranks the same key (QCCL_KEY_FILE, QCCL_KEY "
        "or InitOptions::key)",
        printable((*refused)->substr(0, kMaxReasonBytes / 2)));
  }

  TimePoint within(Nanoseconds duration) const { return saturating_add(limit_.clock->now(), duration); }

  KeySpace& keys_;
  const Participant& self_;
  const StartLimit& limit_;
  std::uint64_t token_;
  std::uint64_t generation_ = 0;
};

}  // namespace

Result<GatheredCards> gather_cards(KeySpace& keys, const Participant& self, const StartLimit& limit) {
  const std::uint64_t token = os::random_nonce();
  for (int lost_connections = 0;;) {
    Attempt attempt(keys, self, limit, token);
    auto result = self.rank == 0 ? attempt.lead() : attempt.join();
    if (result.ok() && *result) return std::move(**result);
    if (result.ok()) continue;
    const bool lost = result.error().kind == ErrorKind::peer_lost && ++lost_connections <= kMaxLostConnections;
    if (!lost || limit.clock->now() >= limit.deadline) {
      // The generation has ended, or the others go on without this process, which is none of their ranks.
      static_cast<void>(keys.leave_will({}));
      return named(self.rank, self.world, result.error());
    }
  }
}

std::string quote_store(const std::string& text, const std::string& location) {
  return fmt::format("{} (from the store {}, which any process that reaches it can write to)", printable(text),
                     location);
}

void report_failure(KeySpace& keys, std::uint64_t generation, const ErrorInfo& failure) {
  if (!keys.set(key("G/failure", generation), failure.message.substr(0, kMaxReasonBytes)).ok()) return;
  static_cast<void>(reported_failure(keys, generation).ok());  // once it answers, the store has the reason
}

Result<std::optional<std::string>> reported_failure(KeySpace& keys, std::uint64_t generation) {
  return keys.get(key("G/failure", generation), TimePoint{});
}

Failure named(int rank, int world, ErrorInfo info) {
  info.rank = rank;
  info.message = fmt::format("rank {} of {}: {}", rank, world, info.message);
  return Failure(std::move(info));
}

Failure failure_about(ErrorKind kind, int peer, std::string message) {
  Failure failure(kind, std::move(message));
  failure.info().peer = peer;
  return failure;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0, last; first < ranks.size(); first = last + 1) {
    last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == first + 1) last = first;
    text += text.empty() ? "" : ", ";
    text += last == first ? fmt::format("{}", ranks[first]) : fmt::format("{}-{}", ranks[first], ranks[last]);
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string own_process_text() {
  const std::string host = os::host_name();
  return fmt::format("process {} on {}", os::process_id(), host.empty() ? "a host without a name" : host)
      .substr(0, kMaxProcessBytes);
}

}  // namespace qccl::bootstrap
