// Where a rank of an OuterLoop stands. Ranks that meet in a new group exchange it, and each decides from the same list
// which ranks lack what, and who sends it to them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "extras/train/outer/position.h"
#include "qccl/communicator.h"

namespace qccl::train {

struct OuterStanding {
  std::uint64_t settings = 0;  // a digest, equal on all ranks
  OuterPosition position{};
  double rate = 0;                 // the optimizer's
  std::int64_t next_begin_in = 0;  // nanoseconds, with every_time
  bool lacks_state = false;
  std::uint64_t group_number = 0;  // random; rank 0's becomes the group's

  bool operator==(const OuterStanding&) const = default;

  bool is_level_with(const OuterStanding& best) const {
    return !lacks_state && position.rounds == best.position.rounds && position.lineage.now == best.position.lineage.now;
  }
  bool lacks_one_of(const OuterStanding& best) const {
    return !lacks_state && position.rounds + 1 == best.position.rounds &&
           position.lineage.now == best.position.lineage.before_last_round;
  }
};

// The standings of the group's ranks, by rank. Collective over the group.
std::vector<OuterStanding> exchange_standings(const OuterStanding& own, Communicator& group);

// All standings have the same number of bytes.
std::string encode_standing(const OuterStanding& standing);
// CorruptData for another number of bytes.
Result<OuterStanding> decode_standing(std::string_view bytes);

// The rank that has the model and the most rounds. If such ranks have different models: the first of the largest party.
int source_of(const std::vector<OuterStanding>& standings);

}  // namespace qccl::train
