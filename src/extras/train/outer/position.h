// Where a rank of an OuterLoop is. One list of its fields serves saved states and what ranks tell each other.
#pragma once

#include <cstdint>

#include "base/digest/digest.h"

namespace qccl::train {

// Which rounds have led to the global model. Ranks whose `now` is equal have the same one.
struct OuterLineage {
  std::uint64_t now = 0, before_last_round = 0;  // digests
  std::uint64_t last_group = 0;                  // the number of the group in which the last round ended

  // A round has ended in the group of this number.
  void add(std::uint64_t group_number) { *this = {digest(group_number, now), now, group_number}; }
  // The model comes from no round: no other rank has it, unless it takes this over.
  void begin(std::uint64_t number) { *this = {.now = number}; }
  bool operator==(const OuterLineage&) const = default;
};

struct OuterPosition {
  std::uint64_t steps = 0;
  std::uint64_t rounds = 0;                         // ended on this rank
  std::uint64_t origin_step = 0, origin_round = 0;  // where the schedule last began anew
  bool is_begun = false;                            // a round is in flight
  std::uint64_t begun_at = 0;                       // its step
  double weight = 1;                                // of this rank's delta; 0 if it has not trained
  double begun_rate = 0;                            // the optimizer's, when the round began
  // No rank had trained the fragment of the last round: it changed neither the global model nor residuals.
  bool was_idle = false;
  std::uint64_t rounds_in_agreement = 0;  // the last ones, which all ranks began in finish(), having skipped none
  std::uint64_t finishes = 0;             // calls of finish() that ended on this rank
  OuterLineage lineage{};

  bool operator==(const OuterPosition&) const = default;
};

// The fields of a saved state, in its order. It begins a lineage of its own.
void visit_saved(auto& fields, auto& position) {
  for (auto* number : {&position.steps, &position.rounds, &position.origin_step, &position.origin_round}) {
    fields.integer(*number);
  }
  fields.template integer<std::uint64_t>(position.is_begun);
  fields.integer(position.begun_at);
  fields.integer(position.weight);
  fields.integer(position.begun_rate);
}

// All fields.
void visit_position(auto& fields, auto& position) {
  visit_saved(fields, position);
  fields.template integer<std::uint8_t>(position.was_idle);
  fields.integer(position.rounds_in_agreement);
  fields.integer(position.finishes);
  fields.integer(position.lineage.now);
  fields.integer(position.lineage.before_last_round);
  fields.integer(position.lineage.last_group);
}

}  // namespace qccl::train
