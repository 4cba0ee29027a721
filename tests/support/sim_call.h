// One collective of one group in a SimWorld. The test posts it rank by rank at any time and checks it
// at its end.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "support/sim_collective.h"
#include "support/test_data.h"

namespace qccl::testing {

struct SimGroup {
  std::uint64_t id = kSimGroup;
  std::vector<int> ranks;  // world ranks

  int size() const { return static_cast<int>(ranks.size()); }
};

SimGroup world_group(const SimWorld& world);

class SimCall {
 public:
  struct Data {
    Pattern pattern = Pattern::normal;
    std::uint64_t seed = 1;
    Placement placement{};
  };
  // `world` and the call's own memory must live until every posted part has ended.
  SimCall(SimWorld& world, SimGroup group, const engine::ResolvedCall& call, const Data& data);
  SimCall(SimWorld& world, SimGroup group, const engine::ResolvedCall& call)
      : SimCall(world, std::move(group), call, Data{}) {}

  // Posts group rank `member`'s part.
  void post(int member, Nanoseconds timeout = std::chrono::seconds(10));
  void post_all();
  bool done(int member) const { return works_[static_cast<std::size_t>(member)]->done(); }
  // The works posted so far.
  std::vector<SimWork> works() const;
  // How the operation failed on `member`; fails the program if it has not ended.
  const internal::SharedFailure& failure(int member) const;

  // Checks that every member succeeded, has the right result, and touched nothing else: "", or what is wrong.
  std::string verify() const;
  // The same for data whose sums are exact in every order.
  std::string verify_exact() const;
  const engine::ResolvedCall& call() const { return call_; }
  const SimGroup& group() const { return group_; }
  ByteVector result(int member) const { return buffers_[static_cast<std::size_t>(member)].result(); }

 private:
  // Every member's output, if all succeeded, else what went wrong.
  std::string take_outputs(std::vector<ByteVector>& outputs) const;
  std::string difference_from_reference(const std::vector<ByteVector>& outputs) const;

  SimWorld& world_;
  const SimGroup group_;
  const engine::ResolvedCall call_;
  std::vector<ByteVector> inputs_;
  std::deque<RankBuffers> buffers_;
  std::vector<SimWork> works_;  // null where not posted
};

// The works of all posted parts of all the calls.
std::vector<SimWork> works_of(const std::deque<SimCall>& calls);

}  // namespace qccl::testing
