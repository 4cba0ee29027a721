// Faults that hit ranks of a simulated network at random frames.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "support/elements.h"
#include "support/sim_world.h"

namespace qccl::testing {

enum class FaultKinds : std::uint8_t {
  kills,
  all,  // kills, stops, cuts both ways and one way, ranks that become slow
};

struct FaultCounts {
  int kills = 0;
  int stops = 0;
  int cuts = 0;
  int slow = 0;

  int sum() const { return kills + stops + cuts + slow; }
};

class RandomFaults {
 public:
  // `may_be_hit`: false for a rank that has nothing left to do. All outlive the object.
  RandomFaults(Random& random, SimWorld& world, FaultKinds kinds, std::function<bool(int)> may_be_hit);

  // Perhaps one of the next frames brings a fault, in place of the one planned before.
  void plan();
  // The same, of the frames of the agreement, of failures and of goodbyes. Not of kills alone.
  void plan_after_failure();
  bool has_died(int rank) const { return dead_.contains(rank); }
  // Lets stopped ranks go on whose time has come; returns them.
  std::vector<int> resume_due();
  // When the next one goes on; kForever: none.
  TimePoint next_resume() const;
  const FaultCounts& counts() const { return counts_; }

 private:
  void on_frame(Bytes frame);
  void hit();

  Random& random_;
  SimWorld& world_;
  const FaultKinds kinds_;
  const std::function<bool(int)> may_be_hit_;
  std::set<int> dead_;
  std::map<int, TimePoint> stopped_;  // until when
  std::uint64_t frames_left_ = 0;     // until the next fault; 0: none is planned
  bool only_failures_ = false;        // counts only frames that are sent after failures and at the end
  FaultCounts counts_;
};

}  // namespace qccl::testing
