// Programs of mixed operations over several groups, drawn from a seed: the same data on every
// rank, which each rank runs in an order of its own.
//
// A group belongs to one lane, a thread of each rank. A lane with several groups posts without
// blocking and mixes its groups' steps as it likes; a lane with one group may block in each step.
// Within a group all ranks keep the order of the steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qccl/communicator.h"
#include "support/elements.h"

namespace qccl::testing {

enum class StepKind : std::uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  barrier,
  message,  // from `root` to `to`
  shift,    // everybody to the next rank, by sendrecv
  list,     // all_reduce of two buffers as one call
};

struct ProgramStep {
  int id = 0;
  int group = 0;
  StepKind kind = StepKind::barrier;
  DataType type = DataType::float32;  // float32, int32, int64 or uint8
  std::size_t count = 0;
  CallOptions options{};
  int to = 0;
  int tag = 0;
  bool any_source = false;  // of a message; its tag is then its own
};

struct ProgramGroup {
  std::vector<int> ranks;  // in the world
  int lane = 0;
};

struct Program {
  std::uint64_t seed = 0;
  int lanes = 1;
  std::vector<bool> blocking;  // by lane
  std::vector<ProgramGroup> groups;
  std::vector<ProgramStep> steps;
};

Program draw_program(std::uint64_t seed, int world);

// What this rank holds during a step, filled and checked against the step's result computed here.
class StepBuffers {
 public:
  // `member` of a group of `size`.
  StepBuffers(const ProgramStep& step, int member, int size);

  std::byte* input() { return input_.data(); }
  std::byte* output() { return output_.data(); }
  // "" if the output is right.
  std::string check() const;
  const ByteVector& result() const { return output_; }

 private:
  const ProgramStep& step_;
  const int member_;
  const int size_;
  ByteVector input_;
  ByteVector output_;
};

}  // namespace qccl::testing
