// Finds out, when two ranks have made different calls of one number, who made which: see mismatch.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/failure/failure_handler.h"
#include "engine/failure/mismatch.h"

namespace qccl::engine {

// One thread.
class MismatchDetector {
 public:
  MismatchDetector(EngineParts& parts, FailureHandler& failures) : parts_(parts), failures_(failures) {}

  // A peer's call of that number differs from this rank's: tells the members this rank's. Null if that is not known any
  // more, or the group has failed.
  Mismatch* begin(Group& group, std::uint64_t sequence);
  // A peer has told its call.
  void on_fingerprint(Group& group, const wire::FrameHeader& header, WorldRank peer, ConstBytes payload);
  // Fails the groups whose members have all told their calls, or had their time.
  void check();
  TimePoint next_deadline() const;
  void forget(std::uint64_t group);

 private:
  // This rank's call of a number, in flight or remembered.
  struct OwnCall {
    std::uint64_t fingerprint;
    std::shared_ptr<const ResolvedCall> call;
  };
  std::optional<OwnCall> own_call(const Group& group, std::uint64_t sequence) const;

  EngineParts& parts_;
  FailureHandler& failures_;
  std::vector<Mismatch> mismatches_;
};

}  // namespace qccl::engine
