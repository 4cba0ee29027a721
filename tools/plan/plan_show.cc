// `qccl plan show`: the plan of a call, the reason for it, and its cost.
#include <fmt/format.h>

#include <optional>

#include "base/text.h"
#include "plan/cost/cost.h"
#include "tools/command_line.h"
#include "tools/plan/plan_inside.h"
#include "tools/plan/plan_layout.h"

namespace qccl::tools {
namespace {

constexpr const char* kShowFooter =
    R"(Shows which algorithm a call of float32 takes and why, the steps of a rank, and for each algorithm of the
collective the predicted time, the bytes that a rank puts on the wire (mean over ranks, headers included), and
the busiest host's bytes. --bytes is the input of a rank; if ranks have pieces (all_gather, reduce_scatter,
gather, scatter, all_to_all), all pieces together.

The prediction adds a latency if data needs a receiver's grant, the latencies on the critical path of a single
slice, and then, pipelined, the busiest host's bytes at the link's rate, or the time of the busiest rank's
processor to move, add and encode. src/plan/cost/cost.h has the formula. The speeds come from a profile, a file
such as `qccl doctor --measure` writes.

With --inside-rate, or inside_Gbps in the profile, it also shows the call with another library inside the hosts, such as
NCCL over NVLink (docs/gpu-hosts.md), beside the least time of an uncompressed one, and up to which rate of a host's
line the compression pays.

The cheapest algorithm is chosen; a sum in rank order (one_shot, sra) loses only to one that saves a tenth. '-'
marks algorithms that may not be chosen; the row ends with the reason.

Exit code: 0; 2 for wrong flags.

Examples:
  qccl plan show all_reduce --world 8 --bytes 64M
  qccl plan show all_reduce --hosts 2x4 --bytes 64M --rate 1gbit --compression minmax:bits=4
  qccl plan show all_reduce --hosts 4x8 --bytes 64M --rate 100gbit --inside-rate 3600gbit --compression int:bits=4
  qccl plan show broadcast --world 8 --bytes 1M --algorithm binomial --all
)";

struct ShowOptions {
  Collective collective = Collective::all_reduce;
  PlanLayout layout;
  std::uint64_t bytes = 0;
  std::optional<Algorithm> algorithm;
  int rank = 0;
  bool all = false;
};

std::optional<int> parse_options(const std::vector<std::string>& arguments, ShowOptions& options) {
  CommandLine app("Shows what a call becomes.", "qccl plan show", "COLLECTIVE --world N --bytes SIZE [OPTIONS]",
                  kShowFooter);
  add_named(app, "COLLECTIVE", options.collective, collective_names(), "all_reduce, broadcast, ...")->required();
  app.add_option("--bytes", options.bytes, "Size; takes K, M or G")->required()->transform(size_value());
  add_layout_flags(app, options.layout);
  add_named(app, "--algorithm", options.algorithm, algorithm_names(), "This one instead of the chosen one");
  app.add_option("--rank", options.rank, "Whose steps to show (default 0)");
  app.add_flag("--all", options.all, "Show the steps of all ranks");
  app.callback([&] {
    if (options.bytes > 1ull << 50) refuse("--bytes is over 1 PiB");
    complete(options.layout, options.collective);
    if (options.rank < 0 || options.rank >= options.layout.world) {
      refuse(fmt::format("--rank {} is no rank of {}", options.rank, options.layout.world));
    }
    check_algorithm(options.collective, options.algorithm);
  });
  return app.read(arguments);
}

void print_prices(const plan::Choice& choice, Algorithm shown) {
  fmt::print("# {:>12} {:>11} {:>10} {:>10} {:>10} {:>13} {:>15}\n", "algorithm", "predicted", "latency", "wire",
             "processor", "wire/rank (B)", "busiest host (B)");
  for (const plan::Candidate& each : choice.candidates) {
    const plan::CostEstimate& price = each.price;
    const char mark = each.algorithm == shown ? '*' : each.unsupported_reason.empty() ? ' ' : '-';
    fmt::print("{} {:>12} {:>11} {:>10} {:>10} {:>10} {:>13.0f} {:>15.0f}{}{}\n", mark, to_string(each.algorithm),
               time_text(price.seconds), time_text(price.start + price.first), time_text(price.wire),
               time_text(price.processor), price.mean_sent_bytes, price.busiest_host_bytes,
               each.unsupported_reason.empty() ? "" : "  ", each.unsupported_reason);
  }
}

void show(const ShowOptions& options) {
  const std::uint64_t bytes = options.bytes;
  const PlanLayout& layout = options.layout;
  const plan::Request counted = request_of(layout, options.collective, Algorithm::one_shot, bytes);
  const std::uint64_t input_bytes = counted.count * sizeof(float);
  const plan::Choice choice =
      plan::explain(selection_key(layout, options.collective, bytes), layout.places(), layout.links);
  const Algorithm chosen = options.algorithm.value_or(choice.algorithm);
  fmt::print("{} of {} float32 ({}{}), compression {}\n{}\nprofile: {}\n\n", to_string(options.collective),
             counted.count, size_text(input_bytes), input_bytes == bytes ? "" : " a rank",
             layout.compression.to_string(), describe(layout), layout.profile.machine);
  fmt::print("chosen: {}: {}\n\n", to_string(chosen), options.algorithm ? "asked for" : choice.reason);
  print_prices(choice, chosen);
  if (has_inside(layout, options.collective)) print_inside(layout, options.collective, bytes);
  const plan::Request request = request_of(layout, options.collective, chosen, bytes);
  fmt::print("\nslices of {} elements\n", request.slice_elements);
  for (int rank = options.all ? 0 : options.rank; rank < (options.all ? layout.world : options.rank + 1); ++rank) {
    fmt::print("\nrank {}:\n{}", rank, plan::to_string(plan::schedule_of(request, rank)));
  }
}

}  // namespace

int plan_show_main(const std::vector<std::string>& arguments) {
  ShowOptions options;
  if (const auto code = parse_options(arguments, options)) return *code;
  show(options);
  return 0;
}

}  // namespace qccl::tools
