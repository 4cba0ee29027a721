#include "chaos/rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/digest/digest.h"
#include "chaos/step.h"

namespace qccl::testing {
namespace {

constexpr std::uint64_t kGrowEvery = 5;  // steps

struct LeftOut {
  std::string why;
};

class Member {
 public:
  explicit Member(const ChaosRank& rank) : rank_(rank), steps_(rank.id), comm_(qccl::init(rank.init)) {
    tell(fmt::format("door {}", comm_.door()));
  }

  // Until the test is over. Throws LeftOut, Problem and any Error that is no loss.
  void run() {
    while (true) {
      try {
        if (std::exchange(has_failed_, false)) shrink();
        if (settle()) return leave();
        if (grow()) continue;
        take_step();
      } catch (const Error& error) {
        check_kind(error);
        has_failed_ = true;
      }
    }
  }

 private:
  struct Told {
    std::uint64_t id;
    std::uint64_t next_step;     // 1 + the step that is next; 0: a newcomer's
    std::uint64_t result;        // digest of the last step's result; 0: it has none
    std::uint64_t grown_before;  // the last step before which it has called grow(), + 1
    std::uint64_t is_over;
  };

  void tell(const std::string& line) const {
    const std::string text = line + "\n";
    if (::write(rank_.channel, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::_Exit(1);
  }

  static void check_kind(const Error& error) {
    if (error.kind() == ErrorKind::peer_lost || error.kind() == ErrorKind::deadline_exceeded) return;
    if (error.kind() != ErrorKind::aborted) throw;
  }

  void shrink() {
    for (int attempts = 1;; ++attempts) {
      try {
        take_group(comm_.shrink({.patience = Milliseconds(2'000), .timeout = Milliseconds(20'000)}));
        return;
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::aborted) throw LeftOut{error.what()};
        if (attempts == 3) throw Problem{fmt::format("shrink() fails again and again: {}", error.what())};
      }
    }
  }

  void take_group(const Communicator& group) {
    steps_.forget_group();
    comm_ = group;
    has_new_group_ = true;
  }

  // The members agree on the step; true if the test is over.
  bool settle() {
    const Told own{rank_.id, steps_.next() ? *steps_.next() + 1 : 0, steps_.result(), grown_before_,
                   rank_.is_over->load() ? 1U : 0U};
    std::vector<Told> all(static_cast<std::size_t>(comm_.size()));
    comm_.all_gather(std::vector<Told>{own}, all);
    std::uint64_t newest = 0, oldest = UINT64_MAX;
    std::vector<std::uint64_t> ids;
    for (const Told& told : all) {
      ids.push_back(told.id);
      if (told.next_step == 0) continue;
      newest = std::max(newest, told.next_step);
      oldest = std::min(oldest, told.next_step);
    }
    if (newest == 0) newest = oldest = 1;  // the first step
    if (newest - oldest > (has_new_group_ ? 1 : 0)) throw Problem{"members are in different steps"};
    for (const Told& told : all) {
      const bool may_differ = told.next_step != newest || told.result == 0;
      for (const Told& other : all) {
        if (may_differ || other.next_step != newest || other.result == 0 || other.result == told.result) continue;
        throw Problem{fmt::format("step {} has different results on members", newest - 2)};
      }
    }
    // Half of the steps in which a member has its result and another has not are repeated, the others taken over.
    const bool repeats = digest(newest, rank_.seed) % 2 == 0;
    steps_.settle((repeats ? oldest : newest) - 1);
    for (const Told& told : all) grown_before_ = std::max(grown_before_, told.grown_before);
    enter(ids);
    return std::ranges::any_of(all, [](const Told& told) { return told.is_over != 0; });
  }

  void enter(const std::vector<std::uint64_t>& ids) {
    has_new_group_ = false;
    if (!has_joined_) tell("joined");
    has_joined_ = true;
    for (const std::uint64_t id : ids_) {
      if (std::ranges::find(ids, id) == ids.end()) lost_.push_back(id);
    }
    ids_ = ids;
  }

  // True if the group has changed.
  bool grow() {
    if (comm_.size() < 2) return grow_from_one();
    const std::uint64_t step = *steps_.next();
    if (step % kGrowEvery != 0 || grown_before_ > step) return false;
    grown_before_ = step + 1;
    const Communicator grown = comm_.grow({.patience = Milliseconds(1'000), .timeout = Milliseconds(10'000)});
    if (grown.size() == comm_.size()) return false;
    take_group(grown);
    return true;
  }

  // Alone, nothing is compressed.
  bool grow_from_one() {
    try {
      take_group(comm_.grow({.at_least = 1, .timeout = Milliseconds(500)}));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::deadline_exceeded) throw;  // none has come
    }
    return true;
  }

  void take_step() {
    const std::uint64_t step = *steps_.next();
    const std::uint64_t result = steps_.take(comm_, ids_);
    tell(fmt::format(
        "step {} {:016x}", step,
        digest(std::string_view(reinterpret_cast<const char*>(ids_.data()), ids_.size() * sizeof(std::uint64_t)),
               result)));
    if (lost_.empty()) return;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    tell(fmt::format("retried {} {}", std::chrono::nanoseconds(now).count(), fmt::join(lost_, " ")));
    lost_.clear();
  }

  void leave() {
    comm_.barrier();
    steps_.forget_group();
    comm_.close();
  }

  const ChaosRank& rank_;
  Steps steps_;
  Communicator comm_;
  std::vector<std::uint64_t> ids_;   // of the members
  std::vector<std::uint64_t> lost_;  // since the last call that ended well
  std::uint64_t grown_before_ = 0;
  bool has_failed_ = false;
  bool has_new_group_ = true;
  bool has_joined_ = false;
};

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

std::string last_words(const ChaosRank& rank) {
  try {
    Member(rank).run();
    return "";
  } catch (const LeftOut& left_out) {
    return "left out " + left_out.why;
  } catch (const Problem& problem) {
    return "problem " + problem.what;
  } catch (const Error& error) {
    return fmt::format("problem {}: {}", to_string(error.kind()), error.what());
  }
}

}  // namespace

void run_chaos_rank(const ChaosRank& rank) {
  const std::size_t before = open_descriptors();
  std::string words = last_words(rank);
  std::ranges::replace(words, '\n', ' ');
  if (!words.empty()) words += '\n';
  words += fmt::format("ended {} {}\n", before, open_descriptors());
  const bool is_written = ::write(rank.channel, words.data(), words.size()) == static_cast<ssize_t>(words.size());
  std::_Exit(is_written ? 0 : 1);
}

}  // namespace qccl::testing
