// The plans of a group's calls, so that a call which is made again is neither resolved nor planned again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/resolve/collective_call.h"
#include "engine/call/executable_plan.h"

namespace qccl::comm {

// Where in a mapped region a call's buffer begins; region 0: nowhere.
struct RegionPlace {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;  // bytes

  friend bool operator==(const RegionPlace&, const RegionPlace&) = default;
};

// All of a call that its plan depends on, besides the group's settings. `count` comes first, as it differs most.
struct CallSignature {
  std::uint64_t count = 0;
  Collective collective = Collective::barrier;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  int root = 0;
  RegionPlace place;
  std::optional<Compression> compression{};

  friend bool operator==(const CallSignature&, const CallSignature&) = default;
};

// False for a call that is resolved each time: one with counts, which are compared in the resolved form, and one with
// error feedback, whose state has to be checked.
bool has_signature(const CollectiveCall& call);
CallSignature signature_of(const CollectiveCall& call, const RegionPlace& place);

// One thread at a time. Holds the last kPlans plans; allocates only for a new one.
class PlanCache {
 public:
  PlanCache() { entries_.reserve(kPlans); }

  using Plan = std::shared_ptr<const engine::ExecutablePlan>;
  // Null if it has none.
  // `call` has a signature.
  Plan find(const CollectiveCall& call, const RegionPlace& place);
  Plan find(const engine::ResolvedCall& call);
  // The codec of a plan with this compression, null if there is none.
  std::shared_ptr<const Codec> find_codec(const Compression& compression) const;
  void add(const std::optional<CallSignature>& signature, Plan plan);
  // The group's settings have changed.
  void clear() { entries_.clear(); }

 private:
  struct Entry {
    std::optional<CallSignature> signature;
    Plan plan;
  };
  // More different calls than a training step makes.
  static constexpr std::size_t kPlans = 128;

  template <class Matches>
  Plan find_if(const Matches& matches);

  std::vector<Entry> entries_;  // a ring once it is full
  std::size_t oldest_ = 0;
  std::size_t next_ = 0;  // after the entry that was found last: programs repeat their calls in order
};

}  // namespace qccl::comm
