// Programs of mixed operations over several groups, drawn from a seed: the same program on every
// rank, but each rank runs it in a different order.
//
// A group belongs to one lane, a thread of each rank. A lane with several groups posts without
// blocking and interleaves its groups' steps in any order; a lane with one group may block in each
// step. Within a group all ranks keep the order of the steps.
//
// Values are chosen so that sums and products of five are exact in every type and order: uncompressed
// results must be right bit for bit, with any algorithm.
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
  shift,    // every rank sends to the next, by sendrecv
  list,     // all_reduce of two buffers as one call
};

struct ProgramStep {
  int id = 0;
  int group = 0;
  StepKind kind = StepKind::collective;
  Collective collective = Collective::barrier;
  DataType type = DataType::float32;
  std::size_t count = 0;  // 0 with `counts`
  // For a v form: each member's count; for an exchange: each member's counts for each, sender by sender.
  std::vector<std::size_t> counts{};
  CallOptions options{};  // without a member's premul_factor
  int to = 0;
  int tag = 0;
  bool any_source = false;  // of a message; no other message then has its tag
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

// Draws a program for a world of up to five ranks.
Program draw_program(std::uint64_t seed, int world);

// This rank's buffers during a step, filled.
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

// Compares the data that a message or a shift brought to this member with its source's: "", or what is wrong.
std::string check_received(const ProgramStep& step, int member, int size, const ByteVector& output);
// Checks all members' outputs of a collective or a list: compressed sums must be within their bound and the same on all
// ranks, everything else must be right bit for bit.
std::string check_results(const ProgramStep& step, const std::vector<ByteVector>& outputs);

}  // namespace qccl::testing
