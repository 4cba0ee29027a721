#include "plan/cost/outer_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace qccl {
namespace {

using train::OuterPlanOptions;
using train::OuterPlanRow;

constexpr const char* kCodecs[] = {
    "none", "cast:type=bf16", "int:bits=8", "int:bits=4", "h4:bits=2", "sign", "topk:density=0.02,values=int2"};
constexpr std::uint64_t kFragments[] = {1, 4, 8};
constexpr std::uint64_t kEvery[] = {1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000, 2000, 5000};
constexpr std::uint64_t kMostDelay = 10;

// Fills in the smallest H that is enough, if any is.
void find_every(OuterPlanRow& row, const OuterPlanOptions& options) {
  for (const std::uint64_t every : kEvery) {
    if (every < row.fragments) continue;
    const double hidden = std::ceil(row.round_seconds / options.step_seconds);  // may be larger than any integer
    const std::uint64_t most = std::min(every / row.fragments, kMostDelay);
    const auto delay = static_cast<std::uint64_t>(std::min(hidden, static_cast<double>(most)));
    const double waited = std::max(0.0, row.round_seconds - static_cast<double>(delay) * options.step_seconds);
    const double work = static_cast<double>(every) * options.step_seconds;
    const double computing = work / (work + static_cast<double>(row.fragments) * waited);
    if (computing < options.computing) continue;
    row.every = every;
    row.delay = delay;
    row.computing = computing;
    return;
  }
}

}  // namespace

Algorithm train::round_algorithm(const Compression& compression) {
  return compression.name() == "topk" ? Algorithm::one_shot : Algorithm::automatic;
}

plan::CostEstimate plan::price_of_round(const Compression& compression, const SelectionKey& key, const Layout& layout,
                                        const MachineModel& links) {
  const Algorithm wanted = train::round_algorithm(compression);
  return predict(key, wanted == Algorithm::automatic ? choose(key, layout, links) : wanted, layout, links);
}

std::vector<OuterPlanRow> plan::outer_rows(const OuterPlanOptions& options, const OuterPrice& price_of) {
  std::vector<OuterPlanRow> rows;
  for (const char* codec : kCodecs) {
    for (const std::uint64_t fragments : kFragments) {
      if (options.layers > 0 && fragments > options.layers) continue;
      const CostEstimate price = price_of(codec, std::max<std::uint64_t>(options.parameters / fragments, 1));
      OuterPlanRow& row = rows.emplace_back();
      row.compression = codec;
      row.fragments = fragments;
      row.round_seconds = price.seconds;
      find_every(row, options);
      if (row.every == 0) continue;
      row.bytes_a_step = price.mean_sent_bytes * static_cast<double>(fragments) / static_cast<double>(row.every);
    }
  }
  return rows;
}

std::string train::to_text(std::span<const OuterPlanRow> rows) {
  std::string text = fmt::format("{:<30} {:>9} {:>6} {:>6} {:>11} {:>10} {:>15}\n", "codec", "fragments", "H", "delay",
                                 "round", "computing", "bytes/step/rank");
  for (const OuterPlanRow& row : rows) {
    text += fmt::format("{:<30} {:>9} ", row.compression, row.fragments);
    text += row.every == 0 ? fmt::format("{:>6} {:>6} {:>11}\n", "-", "-", time_text(row.round_seconds))
                           : fmt::format("{:>6} {:>6} {:>11} {:>9.1f}% {:>15.0f}\n", row.every, row.delay,
                                         time_text(row.round_seconds), 100 * row.computing, row.bytes_a_step);
  }
  return text;
}

}  // namespace qccl
