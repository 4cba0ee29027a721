#include "engine/failure/mismatch_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace qccl::engine {
namespace {

using wire::FrameHeader;

constexpr std::size_t kMaxDescriptionBytes = 256;

// Members that made the same call.
struct Camp {
  std::uint64_t fingerprint;
  std::string description;
  std::vector<int> members;
};

std::vector<Camp> camps_of(const Mismatch& mismatch) {
  const auto& notes = mismatch.notes;
  std::vector<Camp> camps;
  for (std::size_t member = 0; member < notes.size(); ++member) {
    if (!notes[member]) continue;
    auto camp = std::find_if(camps.begin(), camps.end(),
                             [&](const Camp& c) { return c.fingerprint == notes[member]->fingerprint; });
    if (camp == camps.end()) camp = camps.insert(camp, {notes[member]->fingerprint, notes[member]->description, {}});
    camp->members.push_back(mismatch.ranks[member]);
  }
  std::stable_sort(camps.begin(), camps.end(),
                   [](const Camp& a, const Camp& b) { return a.members.size() > b.members.size(); });
  return camps;
}

}  // namespace

bool Mismatch::complete() const {
  return std::all_of(notes.begin(), notes.end(), [](const auto& note) { return note.has_value(); });
}

std::string Mismatch::explain() const {
  std::vector<std::string> parts;
  for (const Camp& camp : camps_of(*this)) {
    parts.push_back(fmt::format("rank{} {} called {}", camp.members.size() > 1 ? "s" : "",
                                fmt::join(camp.members, ", "), camp.description));
  }
  std::vector<int> silent;
  for (std::size_t member = 0; member < notes.size(); ++member) {
    if (!notes[member]) silent.push_back(ranks[member]);
  }
  if (!silent.empty()) {
    parts.push_back(fmt::format("rank{} {} did not say", silent.size() > 1 ? "s" : "", fmt::join(silent, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

WorldRank Mismatch::minority_rank() const {
  const auto camps = camps_of(*this);
  if (camps.size() < 2 || camps.front().members.size() * 2 <= notes.size()) return {};
  return WorldRank(camps.back().members.front());
}

Mismatch* MismatchDetector::begin(Group& group, std::uint64_t sequence) {
  for (Mismatch& mismatch : mismatches_) {
    if (mismatch.group == group.id && mismatch.sequence == sequence) return &mismatch;
  }
  const auto own = own_call(group, sequence);
  if (!own || group.failure) return nullptr;
  Mismatch mismatch;
  mismatch.group = group.id;
  mismatch.sequence = sequence;
  mismatch.deadline = saturating_add(parts_.now, kMismatchPatience);
  mismatch.ranks = group.ranks;
  mismatch.notes.resize(group.ranks.size());
  const std::string description = own->call->describe().substr(0, kMaxDescriptionBytes);
  mismatch.notes[group.rank.index()] = CallReport{own->fingerprint, description};
  const FrameHeader header{
      .kind = wire::FrameKind::fingerprint, .group = group.id, .sequence = sequence, .fingerprint = own->fingerprint};
  for (const int rank : group.ranks) {
    if (WorldRank(rank) != parts_.options.rank) parts_.control.queue(WorldRank(rank), header, description);
  }
  mismatches_.push_back(std::move(mismatch));
  return &mismatches_.back();
}

void MismatchDetector::on_fingerprint(Group& group, const FrameHeader& header, WorldRank peer, ConstBytes payload) {
  Mismatch* mismatch = begin(group, header.sequence);
  if (mismatch == nullptr) return;
  mismatch->notes[group.group_rank(peer).index()] =
      CallReport{header.fingerprint, std::string(as_text(payload).substr(0, kMaxDescriptionBytes))};
}

void MismatchDetector::check() {
  if (mismatches_.empty()) return;
  for (const Mismatch& mismatch : mismatches_) {
    Group* owner = parts_.groups.find(mismatch.group);
    if (owner == nullptr || (!mismatch.complete() && parts_.now < mismatch.deadline)) continue;
    const std::string what = fmt::format(
        "operation #{} differs between ranks: {}. Every rank must make the same calls of a group in the same order",
        mismatch.sequence, mismatch.explain());
    ErrorInfo failure = failures_.group_error(*owner, ErrorKind::misuse, mismatch.minority_rank(), what);
    failure.sequence = mismatch.sequence;
    failures_.fail(*owner, std::move(failure), true);
  }
  std::erase_if(mismatches_, [this](const Mismatch& mismatch) {
    const Group* owner = parts_.groups.find(mismatch.group);
    return owner == nullptr || owner->failure != nullptr;
  });
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
  if (const Operation* operation = parts_.operations.find(group, sequence))
    return PastCall{sequence, operation->fingerprint(), operation->plan().shared_call()};
  if (const PastCall* past = group.past(sequence)) return *past;
  return std::nullopt;
}

}  // namespace qccl::engine
