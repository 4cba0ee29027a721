// The steps of the chaos test: sums of which every result can be told from the step and its members.
//
// Inputs are small integers, so sums are exact in any order. Two of the compressions also keep integers exact
// (bfloat16 and the largest values): there the inputs equal the result plus the residuals, bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qccl/communicator.h"

namespace qccl::testing {

// Something that must not happen.
struct Problem {
  std::string what;
};

class Steps {
 public:
  // `id`: of this process; decides its inputs.
  explicit Steps(std::uint64_t id);

  // The step that is next; empty for a newcomer.
  const std::optional<std::uint64_t>& next() const { return next_; }
  // Digest of the last step's result; 0 if this rank has none.
  std::uint64_t result() const { return result_; }

  // Makes `step` the next one: of a newcomer, or one more or less than the present one after a failure.
  void settle(std::uint64_t step);
  // Takes the next step and checks its result; `ids` are the members'. Throws Error if the call fails, after which the
  // step is as it was, and Problem. Returns result().
  std::uint64_t take(Communicator& group, const std::vector<std::uint64_t>& ids);
  // Memory of the group, which is about to change.
  void forget_group() { shared_.reset(); }

 private:
  struct Kind;
  static const std::vector<Kind>& kinds();
  static const Kind& kind_of(std::uint64_t step);
  // How many steps before `step` are of the kind.
  static std::uint64_t calls_before(std::uint64_t step, std::size_t kind);

  std::span<float> prepare(const Kind& kind, Communicator& group);
  void call(const Kind& kind, Communicator& group, std::span<float> values);
  std::vector<float> held_back(Communicator& group, const ErrorFeedback& feedback) const;

  const std::uint64_t id_;
  std::optional<std::uint64_t> next_;
  std::uint64_t result_ = 0;
  std::vector<ErrorFeedback> feedback_;  // of each kind; none where it is uncompressed
  std::vector<float> residual_;          // before the last call
  std::vector<float> values_;
  std::optional<SharedBuffer<float>> shared_;
};

}  // namespace qccl::testing
