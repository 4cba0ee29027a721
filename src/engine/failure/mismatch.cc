#include "engine/failure/mismatch.h"

#include <fmt/format.h>

#include <algorithm>

namespace qccl::engine {
namespace {

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

}  // namespace qccl::engine
