// `qccl plan outer`: how often machines on slow lines can synchronise (docs/outer.md) and still compute.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "plan/cost/cost.h"
#include "tools/command_line.h"
#include "tools/plan/plan_layout.h"

namespace qccl::tools {
namespace {

constexpr const char* kOuterFooter =
    R"(For each codec and number of fragments the smallest H, steps between two rounds of a fragment, with which ranks
compute for the share --computing of the time, and the delay, the steps in which a round is hidden. A round is an
all_reduce of a fragment, priced as `qccl plan show` does. Of its time T a rank waits for max(0, T - delay steps);
the delay is at most 10, for which training pays nothing that was measured (arXiv 2501.18512), and at most H /
fragments. Data parallelism sends every gradient in each step, and hides none of it.

Not counted: the arithmetic of the outer step, and what encoding takes from the cores that compute.

Exit code: 0; 2 for wrong flags.

Examples:
  qccl plan outer --parameters 10M --world 4 --rate 50mbit --latency 20ms --step-seconds 0.4s
  qccl plan outer --parameters 1G --world 8 --rate 1gbit --latency 20ms --step-seconds 2s --computing 0.95
)";

constexpr const char* kCodecs[] = {
    "none", "cast:type=bf16", "int:bits=8", "int:bits=4", "int:bits=2", "sign", "topk:density=0.02,values=int2"};
constexpr std::uint64_t kFragments[] = {1, 4, 8};
constexpr std::uint64_t kEvery[] = {1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000, 2000, 5000};
constexpr std::uint64_t kMostDelay = 10;

struct OuterFlags {
  PlanLayout layout;
  std::uint64_t parameters = 0;
  double step_seconds = 0;
  double computing = 0.9;
};

struct Row {
  std::uint64_t every = 0, delay = 0;
  double computing = 0;
};

std::optional<int> parse_flags(const std::vector<std::string>& arguments, OuterFlags& flags) {
  CommandLine app("Says how often ranks on slow lines can synchronise.", "qccl plan outer",
                  "--parameters N --world N --step-seconds TIME [OPTIONS]", kOuterFooter);
  app.add_option("--parameters", flags.parameters, "Of the model; takes K, M or G")
      ->required()
      ->transform(size_value());
  app.add_option("--step-seconds", flags.step_seconds, "Time of a step of the inner optimizer: 400ms, 2s")
      ->required()
      ->transform(time_value());
  app.add_option("--computing", flags.computing, "Share of the time, 0 to 1 (default 0.9)")
      ->check(CLI::Range(0.0, 1.0));
  add_layout_flags(app, flags.layout);
  app.callback([&] {
    if (flags.parameters < 1 || flags.parameters > 1ull << 45) refuse("--parameters is not 1 to 2^45");
    if (!(flags.step_seconds > 0)) refuse("--step-seconds is not above 0");
    complete(flags.layout, Collective::all_reduce);
  });
  return app.read(arguments);
}

plan::CostEstimate price_of(const PlanLayout& layout, std::uint64_t elements) {
  const plan::SelectionKey key = selection_key(layout, Collective::all_reduce, elements * sizeof(float));
  const Algorithm algorithm = plan::choose(key, layout.places(), layout.links());
  return plan::predict(key, algorithm, layout.places(), layout.links());
}

// The smallest H that is enough, if any is.
std::optional<Row> find(const OuterFlags& flags, std::uint64_t fragments, double round_seconds) {
  for (const std::uint64_t every : kEvery) {
    if (every < fragments) continue;
    const auto hidden = static_cast<std::uint64_t>(std::ceil(round_seconds / flags.step_seconds));
    const std::uint64_t delay = std::min({hidden, every / fragments, kMostDelay});
    const double waited = std::max(0.0, round_seconds - static_cast<double>(delay) * flags.step_seconds);
    const double work = static_cast<double>(every) * flags.step_seconds;
    const double computing = work / (work + static_cast<double>(fragments) * waited);
    if (computing >= flags.computing) return Row{every, delay, computing};
  }
  return {};
}

void print_rows(const OuterFlags& flags) {
  fmt::print("{:<30} {:>9} {:>6} {:>6} {:>11} {:>10} {:>15}\n", "codec", "fragments", "H", "delay", "round",
             "computing", "bytes/step/rank");
  for (const char* codec : kCodecs) {
    PlanLayout layout = flags.layout;
    layout.compression_flag = codec;
    complete(layout, Collective::all_reduce);
    for (const std::uint64_t fragments : kFragments) {
      const plan::CostEstimate price = price_of(layout, std::max<std::uint64_t>(flags.parameters / fragments, 1));
      const auto row = find(flags, fragments, price.seconds);
      if (!row) {
        fmt::print("{:<30} {:>9} {:>6}\n", codec, fragments, "-");
        continue;
      }
      const double bytes = price.mean_sent_bytes * static_cast<double>(fragments) / static_cast<double>(row->every);
      fmt::print("{:<30} {:>9} {:>6} {:>6} {:>11} {:>9.1f}% {:>15.0f}\n", codec, fragments, row->every, row->delay,
                 time_text(price.seconds), 100 * row->computing, bytes);
    }
  }
}

}  // namespace

int plan_outer_main(const std::vector<std::string>& arguments) {
  OuterFlags flags;
  if (const auto code = parse_flags(arguments, flags)) return *code;
  const plan::CostEstimate every_step = price_of(flags.layout, flags.parameters);
  fmt::print("{} parameters, {}, {} a step\ndata parallel, {}: {} for the gradients of a step, {:.1f} % computing\n\n",
             flags.parameters, describe(flags.layout), time_text(flags.step_seconds),
             flags.layout.compression.to_string(), time_text(every_step.seconds),
             100 * flags.step_seconds / (flags.step_seconds + every_step.seconds));
  print_rows(flags);
  return 0;
}

}  // namespace qccl::tools
