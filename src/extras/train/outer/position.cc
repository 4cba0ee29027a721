#include "extras/train/outer/position.h"

#include "base/digest/digest.h"

namespace qccl::train {

void OuterLineage::add(std::uint64_t group_number) {
  before_last_round = now;
  now = digest(group_number, now);
  last_group = group_number;
}

}  // namespace qccl::train
