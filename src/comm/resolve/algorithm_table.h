// The algorithms of a group's calls that do not say their own: plan::choose() for the group's hosts,
// remembered by collective, type, codec and class of size.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "comm/resolve/cost_environment.h"
#include "plan/cost/choice.h"
#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl::comm {

// One thread at a time. Allocates only where a call is of a new class.
class AlgorithmTable {
 public:
  // `hosts` by group rank.
  AlgorithmTable(const CostEnvironment& cost_environment, const std::vector<int>& hosts);

  struct Asked {
    Collective collective;
    std::uint64_t elements;  // where ranks have pieces: of all together
    DataType type;
    Compression compression;
  };
  Algorithm choose(const Asked& asked);
  plan::Choice explain(const Asked& asked) const;

 private:
  plan::SelectionKey question(const Asked& asked) const;
  std::uint64_t key(const Asked& asked);

  CostEnvironment cost_environment_;
  const std::vector<int> layout_;
  std::vector<Compression> codecs_;  // that calls have had; part of a key is the place in it
  std::unordered_map<std::uint64_t, Algorithm> known_;
};

}  // namespace qccl::comm
