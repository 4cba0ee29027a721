// `qccl log` and `qccl trace`: summarize, draw and merge the logs of ranks.
#include <fmt/format.h>
#include <qccl/qccl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "tools/command_line.h"
#include "tools/log/read_log.h"

namespace qccl::tools {
namespace {

constexpr const char* kLogHelp = R"(Logs of ranks: what each operation took and sent, and which ranks waited for which.

Usage: qccl log COMMAND [OPTIONS]

Commands:
  summary   tables: latency and bandwidth, percentiles and traffic, stragglers
  plot      a picture: the ranks' operations over time, latencies, bytes; rounds of training that synchronises
            every H steps; what compressing each gradient costs
  csv       a line for each operation, for spreadsheets and data frames

Programs write logs with QCCL_LOG_FILE=PREFIX, each rank to PREFIX<rank>.json, which ui.perfetto.dev opens as well.
'qccl trace merge' makes one file of several. 'qccl log COMMAND --help' has the flags and examples of a command.

Examples:
  QCCL_LOG_FILE=log_ qccl run -n 4 -- python train.py
  qccl log summary log_?.json

Exit code: the command's; 2 if there is no such command.
)";

constexpr const char* kSummaryFooter = R"(
Examples:
  qccl log summary log_?.json
  qccl log summary --rank 2 --formulas deepspeed log_?.json

Exit code: 0; 1 if a file can't be read or is no log, or has no such rank; 2 for wrong flags.
)";

constexpr const char* kPlotFooter = R"(
Example:
  qccl log plot ranks.png log_?.json

Exit code: 0; 1 if a file can't be read, is no log or can't be drawn; 2 for wrong flags.
)";

// Takes the command's name.
constexpr const char* kConvertFooter = R"(
Example:
  {} out log_?.json

Exit code: 0; 1 if a file can't be read, is no log or can't be written; 2 for wrong flags.
)";

constexpr const char* kTraceHelp = R"(Traces of ranks, for ui.perfetto.dev and chrome://tracing.

Usage: qccl trace merge OUT FILE...

Example:
  QCCL_LOG_FILE=log_ qccl run -n 4 -- python train.py
  qccl trace merge train.json log_?.json

Exit code: the command's; 2 if there is no such command.
)";

// ---- Reading logs

std::vector<RankLog> ranks_in(const LogJson& document) {
  std::vector<RankLog> logs = heads_in(document);
  for (const LogJson& event : document.at("traceEvents")) {
    const int rank = event.at("pid").get<int>();
    const auto owner = std::find_if(logs.begin(), logs.end(), [&](const RankLog& log) { return log.rank == rank; });
    if (owner != logs.end()) add_record(*owner, event);
  }
  for (RankLog& log : logs) {
    std::stable_sort(log.records.begin(), log.records.end(),
                     [](const auto& a, const auto& b) { return a.times.ended_ns < b.times.ended_ns; });
  }
  return logs;
}

bool is_empty(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) == 0;
}

std::vector<RankLog> read_file(const std::string& path) {
  const LogJson document = parse_log(path);
  try {
    return ranks_in(document);
  } catch (const std::exception& error) {
    refuse_log(path, fmt::format("a log of QCCL that can't be read: {}", error.what()));
  }
}

// The ranks of all files, in rank order. Reports and skips empty files, which killed ranks leave. Throws
// Error(invalid_argument) naming the file if one can't be read, is not a QCCL log, or repeats a rank of another file;
// also throws if all files are empty.
std::vector<RankLog> read_logs(const std::vector<std::string>& paths) {
  std::map<int, std::pair<RankLog, std::string>> by_rank;
  for (const std::string& path : paths) {
    if (is_empty(path)) {
      fmt::print(stderr, "{}: empty, left out: its rank still runs, or was killed before it wrote its log\n", path);
      continue;
    }
    for (RankLog& log : read_file(path)) {
      const int rank = log.rank;
      if (!by_rank.empty() && log.world != by_rank.begin()->second.first.world) {
        const auto& [first, first_path] = by_rank.begin()->second;
        fmt::print(stderr, "{}: of a job of {} ranks, but {} of one of {}: is one of them left from another job?\n",
                   path, log.world, first_path, first.world);
      }
      const auto [known, is_new] = by_rank.try_emplace(rank, std::move(log), path);
      if (is_new) continue;
      refuse_log(path, fmt::format("has rank {}, as {} has: give the files of one job", rank, known->second.second));
    }
  }
  if (by_rank.empty()) refuse_log(paths.front(), "there is no log in what was given");
  std::vector<RankLog> logs;
  for (auto& [rank, log] : by_rank) logs.push_back(std::move(log.first));
  return logs;
}

// ---- The commands

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
  CommandLine app("Sums up the operations of one rank, and compares those of all ranks in the files.",
                  "qccl log summary", "[OPTIONS] FILE...", kSummaryFooter);
  Flags flags;
  add_files(app, flags);
  app.add_option("--rank", flags.rank, "Whose operations (the first in the files)");
  const std::map<std::string, BandwidthFormula> formulas = {{"nccl-tests", BandwidthFormula::nccl_tests},
                                                            {"deepspeed", BandwidthFormula::deepspeed}};
  app.add_option("--formulas", flags.formula, "How to compute bandwidths: nccl-tests (default) or deepspeed")
      ->transform(CLI::CheckedTransformer(formulas))
      ->option_text("NAME");
  if (auto code = app.read(arguments)) return *code;
  return with_logs(app, flags, [&](const auto& logs) { return print_summary(logs, flags); });
}

// A command that writes a file of the ranks' logs, as `text_of` has them.
int convert(const std::string& description, const std::string& name, const std::vector<std::string>& arguments,
            std::string (*text_of)(std::span<const RankLog>)) {
  CommandLine app(description, name, "OUT FILE...", fmt::format(kConvertFooter, name));
  Flags flags;
  app.add_option("OUT", flags.out, "The file to write")->required();
  add_files(app, flags);
  if (auto code = app.read(arguments)) return *code;
  return with_logs(app, flags, [&](const auto& logs) { return write_text(flags.out, text_of(logs)).value_or(""); });
}

int csv_main(const std::vector<std::string>& arguments) {
  return convert("Writes a line for each operation of all ranks in the files.", "qccl log csv", arguments, to_csv);
}

int plot_main(const std::vector<std::string>& arguments) {
  CommandLine app("Draws the operations, the outer loop's rounds and the gauges of all ranks in the files.",
                  "qccl log plot", "OUT FILE...", kPlotFooter);
  Flags flags;
  app.add_option("OUT", flags.out, fmt::format("The picture, {} (needs a Python with matplotlib)", kPictureEndings))
      ->required()
      ->check(picture_value());
  add_files(app, flags);
  if (auto code = app.read(arguments)) return *code;
  if (const auto problem = plot_problem()) return fail(app, *problem);
  return with_logs(app, flags,
                   [&](const auto& logs) { return draw_plot("log", to_trace(logs), flags.out).value_or(""); });
}

int merge_main(const std::vector<std::string>& arguments) {
  const char* description = "Makes one trace of the logs of several ranks, with a track for each.";
  return convert(description, "qccl trace merge", arguments, to_trace);
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
