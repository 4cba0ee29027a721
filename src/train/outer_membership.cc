// OuterLoop: ranks of a new group agree on the round, and those that lack something take it over; saved states.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/bytes.h"
#include "base/digest/digest.h"
#include "train/outer_state.h"

namespace qccl::train {
namespace {

struct Standing {
  std::uint64_t settings = 0;  // a digest, equal on all ranks
  std::uint64_t rounds = 0;
  std::uint64_t lacks_state = 0;
  std::uint64_t last_was_idle = 0;
};

constexpr char kMagic[8] = {'Q', 'C', 'C', 'L', 'O', 'U', 'T', 'R'};
constexpr std::uint64_t kVersion = 1;

class Writer {
 public:
  void number(std::uint64_t value) { bytes(std::as_bytes(std::span(&value, 1))); }
  void block(ConstBytes data) {
    number(data.size());
    bytes(data);
  }
  void bytes(ConstBytes data) { out.insert(out.end(), data.begin(), data.end()); }
  std::vector<std::byte> out;
};

class Reader {
 public:
  explicit Reader(ConstBytes from) : from_(from) {}
  std::uint64_t number() { return qccl::load<std::uint64_t>(take(8).data()); }
  ConstBytes block() { return take(number()); }

 private:
  ConstBytes take(std::uint64_t count) {
    if (count > from_.size()) {
      throw Error({.kind = ErrorKind::corrupt_data, .message = "QCCL: outer loop: the saved state is cut off"});
    }
    const ConstBytes taken = from_.first(count);
    from_ = from_.subspan(count);
    return taken;
  }
  ConstBytes from_;
};

ConstBytes bytes_of(std::span<const float> values) { return std::as_bytes(values); }

[[noreturn]] void fail(const Communicator& group, ErrorKind kind, const std::string& what) {
  throw Error({.kind = kind,
               .message = fmt::format("QCCL rank {}, group '{}': outer loop: {}", group.rank(), group.name(), what),
               .rank = group.rank()});
}

void copy_floats(ConstBytes from, std::span<float> to) {
  if (!to.empty()) std::memcpy(to.data(), from.data(), to.size_bytes());
}

}  // namespace

// Collective over the group, which has none of this loop's calls in flight.
void OuterLoop::State::settle() {
  std::vector<Standing> standings(static_cast<std::size_t>(group_.size()));
  const std::vector<Standing> own{
      {model_.settings(), schedule_.rounds, lacks_state_ ? 1u : 0u, flight_.was_idle ? 1u : 0u}};
  group_.all_gather(own, standings);
  for (std::size_t rank = 0; rank < standings.size(); ++rank) {
    if (standings[rank].settings == standings[0].settings) continue;
    fail(group_, ErrorKind::invalid_argument,
         fmt::format("rank {} has other options or parameters (names, order, sizes) than rank 0", rank));
  }
  // Of the ranks that have the model, the first with the most rounds.
  const auto is_better = [](const Standing& a, const Standing& b) {
    return a.lacks_state != b.lacks_state ? a.lacks_state < b.lacks_state : a.rounds > b.rounds;
  };
  const auto best = std::ranges::min_element(standings, is_better);
  const auto source = static_cast<int>(best - standings.begin());
  const bool is_source = source == group_.rank();
  if (std::ranges::any_of(standings, [](const Standing& each) { return each.lacks_state != 0; })) {
    take_over_all(source, lacks_state_ && !is_source);
    if (is_source) lacks_state_ = false;
  }
  const auto is_behind = [&](const Standing& each) { return each.lacks_state == 0 && each.rounds < best->rounds; };
  if (std::ranges::any_of(standings, is_behind)) {
    const bool is_taking = is_behind(own[0]);
    take_over((best->rounds - 1) % options_.fragments, source, is_taking);
    if (is_taking) {
      flight_.was_idle = best->last_was_idle != 0;
      end_missed_round();
    }
  }
}

// Gives the ranks that are taking the source's global values and optimizer of a fragment.
void OuterLoop::State::take_over(std::size_t index, int source, bool is_taking) {
  OuterFragment& fragment = model_.fragments()[index];
  const CallOptions options{.root = source, .compression = none()};
  const bool is_source = source == group_.rank();
  // A broadcast that fails leaves its values unspecified. No call of a round is in flight.
  const auto values = std::span(flight_.received).first(fragment.global.size());
  std::ranges::copy(fragment.global, values.begin());
  group_.broadcast(values, options);
  std::vector<std::byte> saved;
  if (is_source) saved = model_.optimizer().save(index);
  std::vector<std::uint64_t> size{saved.size()};
  group_.broadcast(size, options);
  saved.resize(size[0]);
  group_.broadcast(saved.data(), saved.size(), DataType::uint8, options);
  if (!is_taking) return;
  std::ranges::copy(values, fragment.global.begin());
  model_.optimizer().load(index, saved);
}

// A rank that is interrupted lacks the state still.
void OuterLoop::State::take_over_all(int source, bool is_taking) {
  std::vector<std::uint64_t> numbers{schedule_.steps,
                                     schedule_.rounds,
                                     schedule_.origin_step,
                                     schedule_.origin_round,
                                     std::uint64_t{flight_.is_begun},
                                     schedule_.begun_at};
  group_.broadcast(numbers, {.root = source, .compression = none()});
  for (std::size_t i = 0; i < model_.fragments().size(); ++i) take_over(i, source, is_taking);
  if (!is_taking) return;
  schedule_.steps = numbers[0];
  schedule_.rounds = numbers[1];
  schedule_.origin_step = numbers[2];
  schedule_.origin_round = numbers[3];
  for (const OuterFragment& fragment : model_.fragments()) model_.blend(fragment, 0, {});
  lacks_state_ = false;
  if (numbers[4] == 0) return;
  begin_round();  // with the others: a rank that has not moved
  schedule_.begun_at = numbers[5];
}

// The round ended on another rank, whose global values are here: the rest of end_round().
void OuterLoop::State::end_missed_round() {
  if (!flight_.feedback.is_none()) flight_.feedback.settle(schedule_.rounds + 1);
  note_and_blend();
  journal_.end(schedule_.clock.now(), group_);
  schedule_.rounds_in_agreement = 0;
}

// ---- Saved states

// | bytes  | content (numbers are uint64; blocks are a number of bytes and the bytes)                               |
// |--------|--------------------------------------------------------------------------------------------------------|
// | 8      | "QCCLOUTR"                                                                                             |
// | 8      | version, 1                                                                                             |
// | 56     | settings, steps, rounds, origin's step and round, 1 if a round is in flight, step in which it began    |
// | 8      | its weight, float64                                                                                    |
// | block  | its deltas, float32; empty without a round in flight                                                   |
// | blocks | for each fragment: global values, optimizer, residual (float32), samples (float64)                     |
// | 8      | XXH3 of everything before                                                                              |
std::vector<std::byte> OuterLoop::State::save() const {
  Writer to;
  to.bytes(std::as_bytes(std::span(kMagic)));
  to.number(kVersion);
  for (const std::uint64_t number :
       {model_.settings(), schedule_.steps, schedule_.rounds, schedule_.origin_step, schedule_.origin_round,
        std::uint64_t{flight_.is_begun}, schedule_.begun_at, std::bit_cast<std::uint64_t>(flight_.weight)}) {
    to.number(number);
  }
  const std::size_t count = flight_.is_begun ? model_.fragments()[schedule_.fragment()].global.size() : 0;
  to.block(bytes_of(std::span(flight_.sent).first(count)));
  for (std::size_t i = 0; i < model_.fragments().size(); ++i) {
    const OuterFragment& fragment = model_.fragments()[i];
    to.block(bytes_of(fragment.global));
    to.block(model_.optimizer().save(i));
    std::vector<float> residual(fragment.residual.size());
    fragment.residual.read(residual, 1);
    to.block(bytes_of(residual));
    to.block(std::as_bytes(std::span(&fragment.samples, 1)));
  }
  to.number(digest(as_text(to.out)));
  return std::move(to.out);
}

void OuterLoop::State::load(std::span<const std::byte> saved, bool is_own) {
  if (flight_.is_begun) fail(group_, ErrorKind::misuse, "load() while a round is in flight: load into a new loop");
  constexpr std::size_t kLeast = 8 + 8 + 64 + 8;
  if (saved.size() < kLeast || std::memcmp(saved.data(), kMagic, sizeof(kMagic)) != 0) {
    fail(group_, ErrorKind::corrupt_data, fmt::format("these {} bytes are not a saved state", saved.size()));
  }
  const ConstBytes content = saved.first(saved.size() - 8);
  if (digest(as_text(content)) != qccl::load<std::uint64_t>(&saved[content.size()])) {
    fail(group_, ErrorKind::corrupt_data, "the saved state is damaged or cut off: its checksum differs");
  }
  Reader from(content.subspan(8));
  if (const auto version = from.number(); version != kVersion) {
    fail(group_, ErrorKind::unsupported,
         fmt::format("the state was saved as version {}, this is version {}", version, kVersion));
  }
  if (from.number() != model_.settings()) {
    fail(group_, ErrorKind::invalid_argument, "the state was saved with other options or parameters");
  }
  for (std::uint64_t* number : {&schedule_.steps, &schedule_.rounds, &schedule_.origin_step, &schedule_.origin_round})
    *number = from.number();
  flight_.is_begun = from.number() != 0;
  flight_.is_posted = false;
  schedule_.begun_at = from.number();
  flight_.weight = std::bit_cast<double>(from.number());
  const ConstBytes sent = from.block();
  copy_floats(sent, std::span(flight_.sent).first(sent.size() / sizeof(float)));
  for (std::size_t i = 0; i < model_.fragments().size(); ++i) {
    OuterFragment& fragment = model_.fragments()[i];
    copy_floats(from.block(), fragment.global);
    model_.optimizer().load(i, from.block());
    std::vector<float> residual(fragment.residual.size());
    copy_floats(from.block(), residual);
    fragment.residual.write(residual);
    if (!is_own) fragment.residual.clear();
    fragment.samples = qccl::load<double>(from.block().data());
  }
}

}  // namespace qccl::train
