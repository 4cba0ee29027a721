// Saved states of an OuterLoop.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/bytes.h"
#include "base/digest/digest.h"
#include "train/outer_state.h"

namespace qccl::train {
namespace {

constexpr char kMagic[8] = {'Q', 'C', 'C', 'L', 'O', 'U', 'T', 'R'};
constexpr std::uint64_t kVersion = 2;

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
  double real() { return std::bit_cast<double>(number()); }
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

void copy_floats(ConstBytes from, std::span<float> to) {
  if (!to.empty()) std::memcpy(to.data(), from.data(), to.size_bytes());
}

}  // namespace

// | bytes  | content (numbers are uint64; blocks are a number of bytes and the bytes)                               |
// |--------|--------------------------------------------------------------------------------------------------------|
// | 8      | "QCCLOUTR"                                                                                             |
// | 8      | version, 2                                                                                             |
// | 56     | settings, steps, rounds, origin's step and round, 1 if a round is in flight, step in which it began    |
// | 16     | its weight, and the optimizer's rate when it began, float64                                            |
// | 8      | the optimizer's rate, float64                                                                          |
// | block  | the round's deltas, float32; empty without a round in flight                                           |
// | blocks | for each fragment: global values, optimizer, residual (float32), samples (float64)                     |
// | 8      | XXH3 of everything before                                                                              |
std::vector<std::byte> OuterRun::save() const {
  Writer to;
  std::size_t expected = 1024;  // more only if the optimizer keeps more than a momentum
  for (const OuterFragment& each : model.fragments()) {
    expected += sizeof(float) * (2 * each.global.size() + each.residual.size()) + 64;
  }
  to.out.reserve(expected + sizeof(float) * flight.sent.size());
  to.bytes(std::as_bytes(std::span(kMagic)));
  to.number(kVersion);
  for (const std::uint64_t number : {model.settings(), schedule.steps, schedule.rounds, schedule.origin_step,
                                     schedule.origin_round, std::uint64_t{flight.is_begun}, schedule.begun_at}) {
    to.number(number);
  }
  for (const double number : {flight.weight, flight.rate, model.optimizer().learning_rate()}) {
    to.number(std::bit_cast<std::uint64_t>(number));
  }
  const std::size_t count = flight.is_begun ? model.fragments()[schedule.fragment()].global.size() : 0;
  to.block(bytes_of(std::span(flight.sent).first(count)));
  for (std::size_t i = 0; i < model.fragments().size(); ++i) {
    const OuterFragment& each = model.fragments()[i];
    to.block(bytes_of(each.global));
    to.block(model.optimizer().save(i));
    std::vector<float> residual(each.residual.size());
    each.residual.read(residual, 1);
    to.block(bytes_of(residual));
    to.block(std::as_bytes(std::span(&each.samples, 1)));
  }
  to.number(digest(as_text(to.out)));
  return std::move(to.out);
}

void OuterRun::load(std::span<const std::byte> saved, bool is_own, const Communicator& group) {
  if (flight.is_begun) fail(group, ErrorKind::misuse, "load() while a round is in flight: load into a new loop");
  constexpr std::size_t kLeast = 8 + 8 + 56 + 24 + 8;
  if (saved.size() < kLeast || std::memcmp(saved.data(), kMagic, sizeof(kMagic)) != 0) {
    fail(group, ErrorKind::corrupt_data, fmt::format("these {} bytes are not a saved state", saved.size()));
  }
  const ConstBytes content = saved.first(saved.size() - 8);
  if (digest(as_text(content)) != qccl::load<std::uint64_t>(&saved[content.size()])) {
    fail(group, ErrorKind::corrupt_data, "the saved state is damaged or cut off: its checksum differs");
  }
  Reader from(content.subspan(8));
  if (const auto version = from.number(); version != kVersion) {
    fail(group, ErrorKind::unsupported,
         fmt::format("the state was saved as version {}, this is version {}", version, kVersion));
  }
  if (from.number() != model.settings()) {
    fail(group, ErrorKind::invalid_argument,
         "the state was saved with other options or parameters, or another optimizer");
  }
  for (std::uint64_t* number : {&schedule.steps, &schedule.rounds, &schedule.origin_step, &schedule.origin_round})
    *number = from.number();
  flight.is_begun = from.number() != 0;
  flight.is_posted = false;
  flight.was_idle = false;
  flight.posted_in.clear();
  schedule.is_finishing = schedule.has_skipped = false;
  schedule.rounds_in_agreement = schedule.finishes = 0;
  schedule.wait_for_next();
  schedule.begun_at = from.number();
  flight.weight = from.real();
  flight.rate = from.real();
  model.optimizer().set_learning_rate(from.real());
  const ConstBytes sent = from.block();
  copy_floats(sent, std::span(flight.sent).first(sent.size() / sizeof(float)));
  for (std::size_t i = 0; i < model.fragments().size(); ++i) {
    OuterFragment& each = model.fragments()[i];
    copy_floats(from.block(), each.global);
    model.optimizer().load(i, from.block());
    std::vector<float> residual(each.residual.size());
    copy_floats(from.block(), residual);
    each.residual.write(residual);
    each.samples = qccl::load<double>(from.block().data());
  }
  std::uint64_t all = 0;
  for (const OuterFragment& each : model.fragments()) all = digest(as_text(bytes_of(each.global)), all);
  lineage.begin(all);
  schedule.is_loaded = true;
  unblended.reset();
  if (!is_own) forget_training();
  if (!flight.is_begun) return;
  note_delta();
  journal.begin(group);
}

void OuterRun::forget_training() {
  unblended.reset();
  for (OuterFragment& each : model.fragments()) {
    each.residual.clear();
    each.samples = 0;
    model.blend(each, 0, {});
  }
  if (!flight.is_begun) return;
  const OuterFragment& current = fragment();
  flight.weight = 0;
  model.take_sent(current, flight.rate, current.global, flight.sent);
}

}  // namespace qccl::train
