// Programs of mixed operations over several groups, drawn from a seed: the same data on every
// rank, which each rank runs in an order of its own.
//
// A group belongs to one lane, a thread of each rank. A lane with several groups posts without
// blocking and mixes its groups' steps as it likes; a lane with one group may block in each step.
// Within a group all ranks keep the order of the steps.
//
// Values are such that sums and products of five are exact in every type and order: what is not
// compressed must be right bit for bit, whatever the algorithm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qccl/communicator.h"
#include "support/elements.h"

namespace qccl::testing {

enum class StepKind : std::uint8_t {
  collective,
  message,  // from `root` to `to`
  shift,    // everybody to the next rank, by sendrecv
  list,     // all_reduce of two buffers as one call
};

struct ProgramStep {
  int id = 0;
  int group = 0;
  StepKind kind = StepKind::collective;
  Collective collective = Collective::barrier;
  DataType type = DataType::float32;
  std::size_t count = 0;  // 0 with `counts`
  // Of a v form: each member's count; of an exchange what each member sends to each, sender by sender.
  std::vector<std::size_t> counts{};
  CallOptions options{};  // without a member's premul_factor
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

// Of up to five ranks.
Program draw_program(std::uint64_t seed, int world);

// What this rank holds during a step, filled.
class StepBuffers {
 public:
  // `member` of a group of `size`.
  StepBuffers(const ProgramStep& step, int member, int size);

  std::byte* input() { return input_.data(); }
  std::byte* output() { return output_.data(); }
  const ByteVector& result() const { return output_; }

 private:
  ByteVector input_;
  ByteVector output_;
};

// Posts a step that is a collective, and its blocking form.
Work post_collective(Communicator& group, const ProgramStep& step, StepBuffers& buffers);
void call_collective(Communicator& group, const ProgramStep& step, StepBuffers& buffers);

// Holds what a message or a shift brought to this member against its source's data: "", or what is wrong.
std::string check_received(const ProgramStep& step, int member, int size, const ByteVector& output);
// Holds all members' outputs of a collective or a list against what they must be: compressed sums within their bound,
// the same on all ranks, everything else bit for bit.
std::string check_results(const ProgramStep& step, const std::vector<ByteVector>& outputs);

}  // namespace qccl::testing
