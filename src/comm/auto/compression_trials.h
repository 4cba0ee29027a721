// What a group's calls with `auto` compression are sent as: a trial (comm/auto/compression_trial.h) for each
// collective, type, setting and class of size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/auto/compression_trial.h"
#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl::comm {

// One thread at a time. Ranks that make the same calls in the same order have the same candidates.
class CompressionTrials {
 public:
  struct Asked {
    Collective collective;
    std::uint64_t elements;
    DataType type;
    Compression compression;  // an automatic one
  };

  // One class of calls.
  struct Class {
    explicit Class(const Asked& asked);

    const Compression& current() const { return candidates[active]; }
    // Moves on to the next call, which takes current().
    CompressionTrial::Todo next();
    // With `times` as all ranks have them.
    void conclude();

    const std::vector<Compression> candidates;
    const bool from_slowest;  // which rank's time counts: where one is the root others' say little
    CompressionTrial trial;
    std::size_t active = 0;
    // What the ranks compare, and the call that does; null outside of it.
    std::vector<double> times;
    std::shared_ptr<void> comparison;
  };

  // Lives as long as the table. Allocates for a class that is new.
  Class& of(const Asked& asked);
  // What a call takes now, without counting as one.
  Compression current(const Asked& asked) const;

 private:
  struct Item {
    Compression compression;
    Collective collective;
    DataType type;
    int size_class;
    std::unique_ptr<Class> calls;
  };
  const Item* find(const Asked& asked) const;

  std::vector<Item> items_;  // few: searched in order
};

}  // namespace qccl::comm
