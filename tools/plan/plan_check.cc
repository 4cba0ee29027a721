// `qccl plan check`: runs every plan through the checker.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <optional>

#include "plan/check/checker.h"
#include "tools/plan/plan_layout.h"

namespace qccl::tools {
namespace {

constexpr const char* kCheckFooter =
    R"(Walks every collective, algorithm and world with even and ragged counts, roots and layouts of hosts,
compressed and not, and runs all ranks' steps symbolically. Every element of the result must hold each
contribution once, added in the same order on every rank; every send must have its receive; no rank may
wait for ever; nothing may be overwritten before it is read, whichever of a rank's lanes come first.

--plant puts a mistake into every plan that has room for it, to show that the checker finds it.

Exit code: 0; 1 with the first mistake found; 2 for wrong flags, and if a planted mistake was not found or no plan
has room for it.

Examples:
  qccl plan check
  qccl plan check --collective all_reduce --algorithm ring --max-world 8
  qccl plan check --plant double_contribution
)";

struct CheckOptions {
  std::optional<Collective> collective;
  std::optional<Algorithm> algorithm;
  int max_world = plan::kMaxCheckedWorld;
  std::optional<plan::Mistake> planted;
};

std::optional<int> parse_options(const std::vector<std::string>& arguments, CheckOptions& options) {
  CommandLine app("Checks the plans of all collectives.", "qccl plan check", "[OPTIONS]", kCheckFooter);
  Names<plan::Mistake> mistakes;
  for (const plan::Mistake mistake : plan::all_mistakes()) mistakes.emplace_back(to_string(mistake), mistake);
  add_named(app, "--collective", options.collective, collective_names(), "Only this one");
  add_named(app, "--algorithm", options.algorithm, algorithm_names(), "Only this one");
  app.add_option("--max-world", options.max_world, "Worlds from 1 to this many ranks (default 33)")
      ->check(CLI::Range(1, 512));
  add_named(app, "--plant", options.planted, mistakes, "Plant a mistake: " + names_text(mistakes));
  return app.read(arguments);
}

// The number of checked plans and steps of one (collective, algorithm), or of all.
struct Tally {
  std::uint64_t plans = 0;
  std::uint64_t steps = 0;
  double seconds = 0;
};

std::uint64_t count_steps(const std::vector<plan::RankSchedule>& schedules) {
  std::uint64_t steps = 0;
  for (const plan::RankSchedule& schedule : schedules) {
    for (const plan::Lane& lane : schedule.lanes) steps += lane.steps.size();
  }
  return steps;
}

class PlanCheck {
 public:
  explicit PlanCheck(const CheckOptions& options) : options_(options) {}

  int run() {
    fmt::print("#{:>15} {:>13} {:>8} {:>11} {:>9}\n", "collective", "algorithm", "plans", "steps", "time");
    for (const Collective collective : kEveryCollective) {
      if (options_.collective && *options_.collective != collective) continue;
      for (const Algorithm algorithm : plan::algorithms_of(collective)) {
        if (options_.algorithm && *options_.algorithm != algorithm) continue;
        if (!run_algorithm(collective, algorithm)) return kExitFailed;
      }
    }
    if (total_.plans == 0) {
      fmt::print(stderr, "qccl plan check: {} has no algorithm {}\n", to_string(*options_.collective),
                 to_string(*options_.algorithm));
      return kExitUsage;
    }
    print_row("all", "", total_);
    if (options_.planted) return conclude_planted();
    fmt::print("{} plans checked for worlds 1 to {}: nothing wrong\n", total_.plans, options_.max_world);
    return 0;
  }

 private:
  // The checker has found nothing.
  int conclude_planted() const {
    std::fflush(stdout);
    fmt::print(stderr, "qccl plan check: the mistake {} was planted in {} of {} plans: {}\n",
               to_string(*options_.planted), planted_, total_.plans,
               planted_ == 0 ? "none has room for it" : "not found");
    return kExitUsage;
  }

  bool run_algorithm(Collective collective, Algorithm algorithm) {
    Tally tally;
    const auto begin = std::chrono::steady_clock::now();
    const Status status =
        plan::for_each_request(collective, algorithm, options_.max_world,
                               [&](const plan::Requests& requests) { return check(requests, tally); });
    progress_.clear();
    tally.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!status.ok()) {
      std::fflush(stdout);
      fmt::print(stderr, "qccl plan check: {}\n", status.error().message);
      return false;
    }
    print_row(to_string(collective), to_string(algorithm), tally);
    total_.plans += tally.plans;
    total_.steps += tally.steps;
    total_.seconds += tally.seconds;
    return true;
  }

  Status check(const plan::Requests& requests, Tally& tally) {
    const plan::Request& first = requests[0];
    show_progress(first);
    std::vector<plan::RankSchedule> schedules;
    for (std::size_t rank = 0; rank < requests.size(); ++rank) {
      schedules.push_back(plan::schedule_of(requests[rank], static_cast<int>(rank)));
    }
    const bool is_planted = options_.planted && plan::plant(*options_.planted, first, schedules);
    planted_ += is_planted;
    const Status status = plan::check(requests, schedules);
    ++tally.plans;
    tally.steps += count_steps(schedules);
    if (status.ok()) return {};
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("{}{}: {}", describe(first),
                               is_planted ? fmt::format(" with a planted {}", to_string(*options_.planted)) : "",
                               status.error().message));
  }

  void show_progress(const plan::Request& request) {
    if (request.world == shown_world_) return;
    shown_world_ = request.world;
    progress_.show(fmt::format("{} {}: world {} of {}", to_string(request.collective), to_string(request.algorithm),
                               request.world, options_.max_world));
  }

  static void print_row(std::string_view collective, std::string_view algorithm, const Tally& tally) {
    fmt::print("{:>16} {:>13} {:>8} {:>11} {:>7.2f} s\n", collective, algorithm, tally.plans, tally.steps,
               tally.seconds);
    std::fflush(stdout);
  }

  const CheckOptions& options_;
  const ProgressLine progress_;
  int shown_world_ = 0;
  std::uint64_t planted_ = 0;
  Tally total_;
};

}  // namespace

int plan_check_main(const std::vector<std::string>& arguments) {
  CheckOptions options;
  if (const auto code = parse_options(arguments, options)) return *code;
  return PlanCheck(options).run();
}

}  // namespace qccl::tools
