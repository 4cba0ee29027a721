// `qccl plan outer`: how often machines on slow lines can synchronise (docs/outer.md) and still compute.
#include <fmt/format.h>

#include <optional>

#include "base/text.h"
#include "plan/cost/outer_rows.h"
#include "tools/command_line.h"
#include "tools/plan/plan_layout.h"

namespace qccl::tools {
namespace {

constexpr const char* kOuterFooter =
    R"(For each codec and number of fragments the smallest H, steps between two rounds of a fragment, with which ranks
compute for the share --computing of the time, and the delay, the steps in which a round is hidden. A round is an
all_reduce of a fragment, priced as `qccl plan show` does, with topk by one_shot. Of its time T a rank waits for
max(0, T - delay steps); the delay is at most 10, for which training pays nothing that was measured (arXiv
2501.18512), and at most H / fragments. Data parallelism sends every gradient in each step, and hides none of it.

Not counted: the arithmetic of the outer step, and what encoding takes from the cores that compute.

Exit code: 0; 2 for wrong flags.

Examples:
  qccl plan outer --parameters 10M --world 4 --rate 50mbit --latency 20ms --step-seconds 0.4s
  qccl plan outer --parameters 1G --world 8 --rate 1gbit --latency 20ms --step-seconds 2s --computing 0.95
)";

struct OuterFlags {
  PlanLayout layout;
  train::OuterPlanOptions options;
};

std::optional<int> parse_flags(const std::vector<std::string>& arguments, OuterFlags& flags) {
  CommandLine app("Says how often ranks on slow lines can synchronise.", "qccl plan outer",
                  "--parameters N --world N --step-seconds TIME [OPTIONS]", kOuterFooter);
  app.add_option("--parameters", flags.options.parameters, "Of the model; takes K, M or G")
      ->required()
      ->transform(size_value());
  app.add_option("--step-seconds", flags.options.step_seconds, "Time of a step of the inner optimizer: 400ms, 2s")
      ->required()
      ->transform(time_value());
  app.add_option("--computing", flags.options.computing, "Share of the time, 0 to 1 (default 0.9)")
      ->check(CLI::Range(0.0, 1.0));
  add_layout_flags(app, flags.layout);
  app.callback([&] {
    if (flags.options.parameters < 1 || flags.options.parameters > 1ull << 45) refuse("--parameters is not 1 to 2^45");
    if (!(flags.options.step_seconds > 0)) refuse("--step-seconds is not above 0");
    complete(flags.layout, Collective::all_reduce);
  });
  return app.read(arguments);
}

plan::SelectionKey key_of(const PlanLayout& layout, std::uint64_t elements) {
  return selection_key(layout, Collective::all_reduce, elements * sizeof(float));
}

plan::CostEstimate price_of(const PlanLayout& layout, std::uint64_t elements) {
  const plan::SelectionKey key = key_of(layout, elements);
  const Algorithm algorithm = plan::choose(key, layout.places(), layout.links);
  return plan::predict(key, algorithm, layout.places(), layout.links);
}

std::string rows_of(const OuterFlags& flags) {
  const auto rows = plan::outer_rows(flags.options, [&](const std::string& compression, std::uint64_t elements) {
    PlanLayout layout = flags.layout;
    layout.compression_flag = compression;
    complete(layout, Collective::all_reduce);
    return plan::price_of_round(layout.compression, key_of(layout, elements), layout.places(), layout.links);
  });
  return to_text(rows);
}

}  // namespace

int plan_outer_main(const std::vector<std::string>& arguments) {
  OuterFlags flags;
  if (const auto code = parse_flags(arguments, flags)) return *code;
  const plan::CostEstimate every_step = price_of(flags.layout, flags.options.parameters);
  fmt::print(
      "{} parameters, {}, {} a step\ndata parallel, {}: {} for the gradients of a step, {:.1f} % computing\n\n{}",
      flags.options.parameters, describe(flags.layout), time_text(flags.options.step_seconds),
      flags.layout.compression.to_string(), time_text(every_step.seconds),
      100 * flags.options.step_seconds / (flags.options.step_seconds + every_step.seconds), rows_of(flags));
  return 0;
}

}  // namespace qccl::tools
