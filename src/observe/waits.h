// Which operations a late rank holds up.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>

#include "qccl/log.h"
#include "qccl/types.h"

namespace qccl {

inline std::optional<Collective> collective_of(const OperationRecord& record) {
  const auto found = std::ranges::find(kEveryCollective, record.operation,
                                       [](Collective collective) { return to_string(collective); });
  return found == std::end(kEveryCollective) ? std::nullopt : std::optional(*found);
}

// Whether the times of its ranks tell which of them came last: it succeeded, and no rank had results before every rank
// had arrived.
inline bool has_stragglers(const OperationRecord& record) {
  if (record.is_message || record.group_size < 2 || !record.error.empty()) return false;
  const auto collective = collective_of(record);
  return collective && !is_rooted(*collective);
}

}  // namespace qccl
