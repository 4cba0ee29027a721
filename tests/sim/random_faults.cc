#include "sim/random_faults.h"

#include <algorithm>

#include "wire/frame.h"

namespace qccl::testing {
namespace {

using std::chrono::milliseconds;
using wire::FrameKind;

constexpr int kMostFaults = 6;  // of all kinds
constexpr int kSlowestMs = 3'000;

bool is_after_failures(ConstBytes frame) {
  const FrameKind kind = wire::decode_header(frame.data()).value().kind;
  return kind == FrameKind::member_list || kind == FrameKind::given_up || kind == FrameKind::goodbye ||
         kind == FrameKind::poison;
}

}  // namespace

RandomFaults::RandomFaults(Random& random, SimWorld& world, FaultKinds kinds, std::function<bool(int)> may_be_hit)
    : random_(random), world_(world), kinds_(kinds), may_be_hit_(std::move(may_be_hit)) {
  world_.network().set_tap([this](int, int, Bytes frame) { on_frame(frame); });
}

void RandomFaults::on_frame(Bytes frame) {
  if (frames_left_ == 0 || (only_failures_ && !is_after_failures(frame))) return;
  if (--frames_left_ == 0) hit();
}

void RandomFaults::plan() {
  only_failures_ = false;
  const bool may_plan = kinds_ == FaultKinds::kills || counts_.sum() < kMostFaults;
  frames_left_ = may_plan && random_.below(2) == 0 ? 1 + random_.below(300) : 0;
}

void RandomFaults::plan_after_failure() {
  if (kinds_ == FaultKinds::kills || counts_.sum() >= kMostFaults || random_.below(2) == 0) return;
  only_failures_ = true;
  frames_left_ = 1 + random_.below(40);
}

// Two ranks are left at least.
void RandomFaults::hit() {
  std::vector<int> running;
  for (int rank = 0; rank < world_.size(); ++rank) {
    if (world_.network().running(rank) && may_be_hit_(rank)) running.push_back(rank);
  }
  if (running.size() < 3) return;
  const int victim = random_.pick(running), other = random_.pick(running);
  const std::uint64_t kind = kinds_ == FaultKinds::kills ? 0 : random_.below(8);
  if (kind <= 2) {
    ++counts_.kills;
    dead_.insert(victim);
    world_.network().kill(victim);
  } else if (kind <= 4) {
    ++counts_.stops;
    stopped_[victim] = world_.now() + milliseconds(random_.below(random_.below(2) == 0 ? 1'000 : 12'000));
    world_.network().stop(victim);
  } else if (kind <= 6) {
    if (victim == other) return;
    ++counts_.cuts;
    world_.network().link(victim, other).is_cut = true;
    if (kind == 6) world_.network().link(other, victim).is_cut = true;
  } else {
    ++counts_.slow;
    world_.network().processor(victim).work(milliseconds(random_.below(kSlowestMs)));
  }
  plan_after_failure();
}

std::vector<int> RandomFaults::resume_due() {
  std::vector<int> resumed;
  for (const auto& [rank, time] : stopped_) {
    if (time > world_.now()) continue;
    if (!has_died(rank)) world_.network().resume(rank);
    resumed.push_back(rank);
  }
  for (const int rank : resumed) stopped_.erase(rank);
  return resumed;
}

TimePoint RandomFaults::next_resume() const {
  TimePoint next = kForever;
  for (const auto& [rank, time] : stopped_) next = std::min(next, time);
  return next;
}

}  // namespace qccl::testing
