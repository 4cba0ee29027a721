// `qccl log` and `qccl trace`: summarize, draw and merge the logs of ranks.
#include <fmt/format.h>
#include <qccl/qccl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>

#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/log/log_reader.h"
#include "tools/plot.h"

namespace qccl::tools {
namespace {

constexpr const char* kLogHelp = R"(Logs of ranks: what each operation took and sent, and which ranks waited for which.

Usage: qccl log COMMAND [OPTIONS]

Commands:
  summary   tables: latency and bandwidth, percentiles and traffic, stragglers
  plot      a picture: the ranks' operations over time, latencies, bytes
  csv       a line for each operation, for spreadsheets and data frames

Programs write logs with QCCL_LOG_FILE=PREFIX, each rank to PREFIX<rank>.json, which ui.perfetto.dev opens as well.
'qccl trace merge' makes one file of several. 'qccl log COMMAND --help' has the flags and examples of a command.
)";

constexpr const char* kTraceHelp = R"(Traces of ranks, for ui.perfetto.dev and chrome://tracing.

Usage: qccl trace merge OUT FILE...

Example:
  QCCL_LOG_FILE=log_ qccl run -n 4 -- python train.py
  qccl trace merge train.json log_?.json
)";

struct Flags {
  std::string out;
  std::vector<std::string> files;
  std::optional<int> rank;
  BandwidthFormula formula = BandwidthFormula::nccl_tests;
};

void add_files(CLI::App& app, Flags& flags) {
  app.add_option("FILE", flags.files, "Logs of ranks of one job, or a merged one")->required();
}

int fail(const CLI::App& app, const std::string& problem) {
  fmt::print(stderr, "{}: {}\n", app.get_name(), problem);
  return kExitFailed;
}

// Reads the files and calls `action` with their ranks; `action` returns what went wrong.
template <class Action>
int with_logs(const CLI::App& app, const Flags& flags, Action action) {
  try {
    const std::vector<RankLog> logs = read_logs(flags.files);
    const std::string problem = action(logs);
    return problem.empty() ? 0 : fail(app, problem);
  } catch (const Error& error) {
    return fail(app, error.what());
  }
}

std::string print_summary(const std::vector<RankLog>& logs, const Flags& flags) {
  const int rank = flags.rank.value_or(logs.front().rank);
  const auto own = std::find_if(logs.begin(), logs.end(), [&](const RankLog& log) { return log.rank == rank; });
  if (own == logs.end()) return fmt::format("rank {} is in none of the files", rank);
  const auto rows = summarize(*own, flags.formula);
  fmt::print("rank {} of {} on {}: {} operations\n", own->rank, own->world, own->host, own->records.size());
  if (own->dropped > 0) fmt::print("{} earlier ones had to make room\n", own->dropped);
  fmt::print("{}\n{}", latency_table(rows), wire_table(rows));
  if (logs.size() > 1) fmt::print("\n{}", straggler_table(find_stragglers(logs, rank)));
  for (const OperationRecord& record : own->records) {
    if (!record.error.empty()) fmt::print("failed: {} #{}: {}\n", record.name, record.sequence, record.error);
  }
  return {};
}

int summary_main(const std::vector<std::string>& arguments) {
  CLI::App app("Sums up the operations of one rank, and compares those of all ranks in the files.", "qccl log summary");
  set_usage(app, "qccl log summary [OPTIONS] FILE...");
  Flags flags;
  add_files(app, flags);
  app.add_option("--rank", flags.rank, "Whose operations (the first in the files)");
  const std::map<std::string, BandwidthFormula> formulas = {{"nccl-tests", BandwidthFormula::nccl_tests},
                                                            {"deepspeed", BandwidthFormula::deepspeed}};
  app.add_option("--formulas", flags.formula, "How to compute bandwidths: nccl-tests (default) or deepspeed")
      ->transform(CLI::CheckedTransformer(formulas))
      ->option_text("NAME");
  if (auto code = parse(app, arguments, kExitUsage)) return *code;
  return with_logs(app, flags, [&](const auto& logs) { return print_summary(logs, flags); });
}

int csv_main(const std::vector<std::string>& arguments) {
  CLI::App app("Writes a line for each operation of all ranks in the files.", "qccl log csv");
  set_usage(app, "qccl log csv OUT FILE...");
  Flags flags;
  app.add_option("OUT", flags.out, "The file to write")->required();
  add_files(app, flags);
  if (auto code = parse(app, arguments, kExitUsage)) return *code;
  return with_logs(app, flags, [&](const auto& logs) { return write_text(flags.out, to_csv(logs)).value_or(""); });
}

int plot_main(const std::vector<std::string>& arguments) {
  CLI::App app("Draws the operations of all ranks in the files.", "qccl log plot");
  set_usage(app, "qccl log plot OUT FILE...");
  Flags flags;
  app.add_option("OUT", flags.out, fmt::format("The picture, {} (needs a Python with matplotlib)", kPictureEndings))
      ->required();
  add_files(app, flags);
  if (auto code = parse(app, arguments, kExitUsage)) return *code;
  if (const auto problem = picture_name_problem(flags.out)) {
    fail(app, *problem);
    return kExitUsage;
  }
  if (const auto problem = plot_problem()) return fail(app, *problem);
  return with_logs(app, flags,
                   [&](const auto& logs) { return draw_plot("log", to_trace(logs), flags.out).value_or(""); });
}

int merge_main(const std::vector<std::string>& arguments) {
  CLI::App app("Makes one trace of the logs of several ranks, with a track for each.", "qccl trace merge");
  set_usage(app, "qccl trace merge OUT FILE...");
  Flags flags;
  app.add_option("OUT", flags.out, "The file to write")->required();
  add_files(app, flags);
  if (auto code = parse(app, arguments, kExitUsage)) return *code;
  return with_logs(app, flags, [&](const auto& logs) { return write_text(flags.out, to_trace(logs)).value_or(""); });
}

}  // namespace

int log_main(const std::vector<std::string>& arguments) {
  constexpr Command kCommands[] = {{"summary", summary_main}, {"plot", plot_main}, {"csv", csv_main}};
  return dispatch("qccl log", kLogHelp, kCommands, arguments);
}

int trace_main(const std::vector<std::string>& arguments) {
  constexpr Command kCommands[] = {{"merge", merge_main}};
  return dispatch("qccl trace", kTraceHelp, kCommands, arguments);
}

}  // namespace qccl::tools
