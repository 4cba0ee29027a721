#include "engine/act/mismatch_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "engine/shrink/shrink_roll.h"

namespace qccl::engine {
namespace {

using wire::FrameHeader;

constexpr std::size_t kMaxDescriptionBytes = 256;

// Members that made the same call.
struct Camp {
  std::uint64_t fingerprint;
  std::string description;
  std::vector<int> ranks;  // in the world
};

}  // namespace

MismatchDetector::Mismatch* MismatchDetector::find_or_begin(Group& group, std::uint64_t sequence) {
  for (Mismatch& mismatch : mismatches_) {
    if (mismatch.group == group.id && mismatch.sequence == sequence) return &mismatch;
  }
  const auto own = own_call(group, sequence);
  if (!own || group.failure) return nullptr;
  Mismatch mismatch;
  mismatch.group = group.id;
  mismatch.sequence = sequence;
  mismatch.deadline = saturating_add(clock_.now(), std::max(kMismatchPatience, 3 * peers_.longest_round_trip(group)));
  mismatch.notes.resize(group.ranks.size());
  const std::string description = own->call->describe().substr(0, kMaxDescriptionBytes);
  mismatch.notes[group.rank.index()] = CallReport{own->fingerprint, description};
  const FrameHeader header{
      .kind = wire::FrameKind::fingerprint, .group = group.id, .sequence = sequence, .fingerprint = own->fingerprint};
  control_.queue_for_all(group.ranks, header, description);
  mismatches_.push_back(std::move(mismatch));
  return &mismatches_.back();
}

void MismatchDetector::on_fingerprint(Group& group, const FrameHeader& header, WorldRank peer, ConstBytes payload) {
  Mismatch* mismatch = find_or_begin(group, header.sequence);
  if (mismatch == nullptr) return;
  mismatch->notes[group.group_rank(peer).index()] =
      CallReport{header.fingerprint, std::string(as_text(payload).substr(0, kMaxDescriptionBytes))};
}

void MismatchDetector::check() {
  if (mismatches_.empty()) return;
  for (const Mismatch& mismatch : mismatches_) {
    Group* owner = groups_.find(mismatch.group);
    const bool all_told = std::ranges::all_of(mismatch.notes, [](const auto& note) { return note.has_value(); });
    if (owner != nullptr && (all_told || clock_.now() >= mismatch.deadline)) fail(*owner, mismatch);
  }
  std::erase_if(mismatches_, [this](const Mismatch& mismatch) {
    const Group* owner = groups_.find(mismatch.group);
    return owner == nullptr || owner->failure != nullptr;
  });
}

// "rank 0, 1 and 3 called all_reduce(...), rank 2 called broadcast(...)"; minorities last. A rank that differs from a
// majority is to blame.
void MismatchDetector::fail(Group& group, const Mismatch& mismatch) {
  std::vector<Camp> camps;
  std::vector<int> silent;
  for (std::size_t member = 0; member < mismatch.notes.size(); ++member) {
    const auto& note = mismatch.notes[member];
    if (!note) {
      silent.push_back(group.ranks[member]);
      continue;
    }
    auto camp = std::ranges::find(camps, note->fingerprint, &Camp::fingerprint);
    if (camp == camps.end()) camp = camps.insert(camp, {note->fingerprint, note->description, {}});
    camp->ranks.push_back(group.ranks[member]);
  }
  std::ranges::stable_sort(camps, std::greater(), [](const Camp& camp) { return camp.ranks.size(); });
  std::vector<std::string> parts;
  for (const Camp& camp : camps) parts.push_back(fmt::format("{} called {}", name_ranks(camp.ranks), camp.description));
  if (!silent.empty()) parts.push_back(name_ranks(silent) + " did not say");
  const bool has_majority = camps.size() > 1 && camps.front().ranks.size() * 2 > mismatch.notes.size();
  const std::string what = fmt::format(
      "operation #{} differs between ranks: {}. Every rank must make the same calls of a group in the same order",
      mismatch.sequence, fmt::join(parts, "; "));
  ErrorInfo failure = failures_.group_error(group, ErrorKind::misuse,
                                            has_majority ? WorldRank(camps.back().ranks.front()) : WorldRank(), what);
  failure.sequence = mismatch.sequence;
  failures_.fail(group, std::move(failure), true);
}

TimePoint MismatchDetector::next_deadline() const {
  TimePoint next = kForever;
  for (const Mismatch& mismatch : mismatches_) next = std::min(next, mismatch.deadline);
  return next;
}

void MismatchDetector::forget(std::uint64_t group) {
  std::erase_if(mismatches_, [group](const Mismatch& mismatch) { return mismatch.group == group; });
}

std::optional<PastCall> MismatchDetector::own_call(const Group& group, std::uint64_t sequence) const {
  if (const Operation* operation = operations_.find(group, sequence))
    return PastCall{sequence, operation->fingerprint(), operation->plan().shared_call()};
  if (const PastCall* past = group.past(sequence)) return *past;
  return std::nullopt;
}

}  // namespace qccl::engine
