// Saved states of an OuterLoop.
#include <fmt/format.h>

#include <cstring>

#include "base/digest/digest.h"
#include "base/fields.h"
#include "extras/train/outer/run.h"

namespace qccl::train {
namespace {

constexpr char kMagic[8] = {'Q', 'C', 'C', 'L', 'O', 'U', 'T', 'R'};
constexpr std::uint64_t kVersion = 2;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kLeastBytes = 96 + kChecksumBytes;  // before the deltas

std::span<const float> deltas(const OuterRun& run) {
  const std::size_t count = run.position.is_begun ? run.model.fragments()[run.schedule.fragment()].global.size() : 0;
  return std::span(run.flight.sent).first(count);
}

// Reads the fields up to the settings, and throws unless this loop can read the others.
FieldReader checked(ConstBytes saved, const OuterRun& run, const Communicator& group) {
  if (saved.size() < kLeastBytes || std::memcmp(saved.data(), kMagic, sizeof(kMagic)) != 0) {
    fail(group, ErrorKind::corrupt_data, fmt::format("these {} bytes are not a saved state", saved.size()));
  }
  const ConstBytes content = saved.first(saved.size() - kChecksumBytes);
  if (digest(as_text(content)) != load<std::uint64_t>(&saved[content.size()])) {
    fail(group, ErrorKind::corrupt_data, "the saved state is damaged or cut off: its checksum differs");
  }
  FieldReader from(content.subspan(sizeof(kMagic)));
  std::uint64_t version = 0, settings = 0;
  from.integer(version);
  if (version != kVersion) {
    fail(group, ErrorKind::unsupported,
         fmt::format("the state was saved as version {}, this is version {}", version, kVersion));
  }
  from.integer(settings);
  if (settings != run.model.settings()) {
    fail(group, ErrorKind::invalid_argument,
         "the state was saved with other options or parameters, or another optimizer");
  }
  return from;
}

}  // namespace

// | bytes  | content (fields.h; numbers are uint64)                                                                 |
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
  FieldWriter<std::vector<std::byte>> to;
  std::size_t expected = 1024;  // more only if the optimizer keeps more than a momentum
  for (const OuterFragment& each : model.fragments()) {
    expected += sizeof(float) * (2 * each.global.size() + each.residual.size()) + 64;
  }
  to.reserve(expected + sizeof(float) * flight.sent.size());
  to.raw(std::as_bytes(std::span(kMagic)));
  to.integer(kVersion);
  to.integer(model.settings());
  visit_saved(to, position);
  to.integer(model.optimizer().learning_rate());
  to.values(deltas(*this));
  for (std::size_t i = 0; i < model.fragments().size(); ++i) {
    const OuterFragment& each = model.fragments()[i];
    to.values(std::span(each.global));
    to.block(model.optimizer().save(i));
    std::vector<float> residual(each.residual.size());
    each.residual.read(residual, 1);
    to.values(std::span(residual));
    to.values(std::span(&each.samples, 1));
  }
  to.integer(digest(as_text(to.written())));
  return to.take();
}

void OuterRun::load(std::span<const std::byte> saved, bool is_own, const Communicator& group) {
  if (position.is_begun) fail(group, ErrorKind::misuse, "load() while a round is in flight: load into a new loop");
  FieldReader from = checked(saved, *this, group);
  position = {};
  visit_saved(from, position);
  flight.is_posted = false;
  flight.posted_in.clear();
  schedule.is_finishing = schedule.has_skipped = false;
  schedule.wait_for_next();
  double rate = 0;
  from.integer(rate);
  model.optimizer().set_learning_rate(rate);
  from.values(std::span(flight.sent).first(deltas(*this).size()));
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < model.fragments().size(); ++i) {
    OuterFragment& each = model.fragments()[i];
    ConstBytes optimizer;
    from.values(std::span(each.global));
    from.block(optimizer);
    model.optimizer().load(i, optimizer);
    std::vector<float> residual(each.residual.size());
    from.values(std::span(residual));
    each.residual.write(residual);
    from.values(std::span(&each.samples, 1));
    all = digest(as_text(std::as_bytes(std::span(each.global))), all);
  }
  if (const Status end = from.check_finished("the saved state"); !end) {
    fail(group, ErrorKind::corrupt_data, end.error().message);
  }
  position.lineage.begin(all);
  schedule.is_loaded = true;
  unblended.reset();
  if (!is_own) forget_training();
  if (!position.is_begun) return;
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
  if (!position.is_begun) return;
  const OuterFragment& current = fragment();
  position.weight = 0;
  model.take_sent(current, position.begun_rate, current.global, flight.sent);
}

}  // namespace qccl::train
