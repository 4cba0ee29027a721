#include "engine/collective/mapped_operation.h"

#include <algorithm>

#include "kernels/copy.h"

namespace qccl::engine {
namespace {

// Stays in L1 between its reduction and its copies to the other ranks.
constexpr std::size_t kSliceBytes = 16 * 1024;
// Some 100 us, after which the engine turns to other work.
constexpr int kSlicesPerStep = 64;
constexpr std::uint64_t kRounds = 2;

}  // namespace

MappedOperation::MappedOperation(Group& group, FrameSender& frame_sender, ScratchPool& pool, const ExecutablePlan& plan)
    : CellOperation(group, frame_sender, pool, kRounds),
      chunk_(chunk_ranges(plan.call().count, group.world(), 1)[group.rank.index()]),
      sum_(math()) {}

std::byte* MappedOperation::buffer(GroupRank member, std::uint64_t element) const {
  return arguments_.region->of_member[member.index()].get() + call().region_offset + element * math().element_size();
}

bool MappedOperation::combine() {
  if (round() > 0) return true;
  const std::uint64_t slice = kSliceBytes / math().element_size();
  for (int i = 0; i < kSlicesPerStep && done_ < chunk_.count; ++i) {
    const std::uint64_t elements = std::min(slice, chunk_.count - done_);
    reduce_slice(chunk_.begin + done_, static_cast<std::size_t>(elements));
    done_ += elements;
  }
  if (done_ < chunk_.count) return false;
  sum_.release();
  return true;
}

void MappedOperation::reduce_slice(std::uint64_t first, std::size_t elements) {
  std::byte* const own = buffer(group_.rank, first);
  sum_.begin(group_.world());
  for (GroupRank member(0); member.value() < group_.world(); ++member) {
    sum_.add_input(buffer(member, first), own, elements);
  }
  sum_.finish(own, elements);
  for (GroupRank member(0); member.value() < group_.world(); ++member) {
    if (member != group_.rank) kernels::copy(buffer(member, first), own, elements * math().element_size());
  }
}

}  // namespace qccl::engine
