#include "tools/perf/perf_table.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

namespace qccl::tools {
namespace {

constexpr const char* kColumns =
    "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6}  {:>7}  {:>6}  {:>6}  {:>6} {:>{}}";
constexpr const char* kOwnColumns = "  {:>12}  {:>6}  {:>9}  {:>9}";

// As in nccl-tests: the blanks in front of each group are 16 more than its columns are wide.
constexpr const char* kGroups =
    "#                                                              out-of-place                       in-place        "
    "  ";

std::string time_of_day() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(now));
}

std::string column_names(const PerfOptions& options) {
  const int width = options.timestamps ? 19 : 0;
  std::string text = fmt::format("{}\n", kGroups);
  text += fmt::format(kColumns, "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time",
                      "algbw", "busbw", "#wrong", options.timestamps ? "timestamp" : "", width);
  text += fmt::format(kOwnColumns, "wire", "ratio", "max error", "bound") + "\n";
  text += fmt::format(kColumns, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
                      "(GB/s)", "", options.timestamps ? "%Y-%m-%d %H:%M:%S" : "", width);
  return text + fmt::format(kOwnColumns, "(B/rank)", "", "", "") + "\n";
}

std::string step_text(const PerfOptions& options) {
  return options.step_factor > 1 ? fmt::format("{}(factor)", options.step_factor)
                                 : fmt::format("{}(bytes)", options.step_bytes);
}

std::string placement_text(const Measurement& m) {
  const std::string times = fmt::format("  {:>7}  {:>6}  {:>6}", fit(m.mean_us, 7), fit(m.algbw, 6), fit(m.busbw, 6));
  if (!m.checked) return times + "    N/A";  // one column less, as in nccl-tests
  // Ranks that hold different bits are wrong even if each is within its bound.
  const std::uint64_t wrong = m.wrong == 0 && !m.same_bits ? 1 : m.wrong;
  return times + fmt::format("  {:>6g}", static_cast<double>(wrong));
}

// nccl-tests' name of the program.
std::string test_name(const PerfOptions& options) {
  const bool exchanges = options.collective == Collective::all_to_all;
  return fmt::format("{}_perf", exchanges ? "alltoall" : name_of(options.collective));
}

std::string own_columns(const Measurement& m) {
  const std::string ratio = m.compression_ratio ? fit(*m.compression_ratio, 6) : "N/A";
  const std::string error = m.checked ? fmt::format("{:.3g}", m.largest_error) : "N/A";
  const std::string bound = m.checked ? fmt::format("{:.3g}", m.largest_bound) : "N/A";
  return fmt::format(kOwnColumns, fmt::format("{:.0f}", m.wire_bytes), ratio, error, bound);
}

// ---- JSON

using Json = nlohmann::ordered_json;

Json finite_or_null(double number) { return std::isfinite(number) ? Json(number) : Json(nullptr); }

Json result(const Case& c, bool in_place, const Measurement& m) {
  Json entry;
  entry["collective"] = name_of(c.collective);
  entry["bytes"] = c.bytes();
  entry["count"] = c.count;
  entry["dtype"] = type_name(c.type);
  entry["op"] = op_name(c);
  entry["root"] = root_of(c);
  entry["in_place"] = in_place;
  entry["algorithm"] = c.collective ? Json(to_string(m.effective.algorithm)) : Json(nullptr);
  entry["asked_compression"] = c.compression ? Json(c.compression->to_string()) : Json(nullptr);
  entry["compression"] = m.effective.compression.to_string();
  entry["time_us"] = {{"min", m.min_us}, {"median", m.median_us}, {"max", m.max_us}, {"mean", m.mean_us}};
  entry["algbw_GBps"] = m.algbw;
  entry["busbw_GBps"] = m.busbw;
  entry["wire_bytes_per_rank"] = m.wire_bytes;
  entry["payload_bytes_per_rank"] = m.payload_bytes;
  entry["compression_ratio"] = m.compression_ratio ? Json(*m.compression_ratio) : Json(nullptr);
  entry["max_abs_error"] = m.checked ? finite_or_null(m.largest_error) : Json(nullptr);
  entry["error_bound"] = m.checked ? finite_or_null(m.largest_bound) : Json(nullptr);
  entry["wrong"] = m.checked ? Json(m.wrong) : Json(nullptr);
  entry["same_bits"] = m.checked ? Json(m.same_bits) : Json(nullptr);
  return entry;
}

Json options_object(const PerfOptions& options) {
  Json object;
  object["min_bytes"] = options.min_bytes;
  object["max_bytes"] = options.max_bytes;
  const bool multiplies = options.step_factor > 1;
  object[multiplies ? "step_factor" : "step_bytes"] = multiplies ? options.step_factor : options.step_bytes;
  object["iterations"] = options.iterations;
  object["warmup_iterations"] = options.warmup_iterations;
  object["run_cycles"] = options.run_cycles;
  object["check_iterations"] = options.check_iterations;
  object["average"] = options.average;
  object["blocking"] = options.blocking;
  object["algorithm"] = to_string(options.algorithm);
  object["compressions"] = Json::array();
  for (const Compression& compression : options.compressions) object["compressions"].push_back(compression.to_string());
  object["link_rate"] = options.job.link_rate;
  object["timeout_s"] = options.timeout_seconds;
  return object;
}

Json header_object(const PerfOptions& options, const PerfReport& report) {
  Json header;
  header["version"] = version();
  header["host"] = report.ranks[0].host;
  header["ranks"] = report.ranks.size();
  header["transport"] = options.job.transport.empty() ? "auto" : options.job.transport;
  header["device"] = options.device == DeviceKind::cuda ? "cuda" : "cpu";
  header["device_name"] = report.ranks[0].device_name;
  header["communicator"] = report.description;
  header["options"] = options_object(options);
  return header;
}

}  // namespace

std::string fit(double number, int width) {
  for (const int decimals : {2, 1, 0}) {
    std::string text = fmt::format("{:.{}f}", number, decimals);
    if (static_cast<int>(text.size()) <= width) return text;
  }
  for (int decimals = width; decimals > 0; --decimals) {
    std::string text = fmt::format("{:.{}e}", number, decimals);
    if (static_cast<int>(text.size()) <= width) return text;
  }
  return fmt::format("{:.0e}", number);
}

std::string op_name(const Case& c) { return c.is_reduction() ? op_name(c.op) : "none"; }

int root_of(const Case& c) { return c.is_rooted() ? c.root : -1; }

std::string header(const PerfOptions& options, const std::vector<RankInfo>& ranks, const std::string& description) {
  std::string text = fmt::format("# qccl version {} (columns of nccl-tests 2.19.6)\n", version());
  text += fmt::format("# Collective test starting: {}\n", test_name(options));
  text += fmt::format(
      "# nThread 1 nGpus {} minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} agg iters: 1 validation: {} "
      "graph: 0 unalign: 0\n#\n# Using devices\n",
      options.ranks, options.min_bytes, options.max_bytes, step_text(options), options.warmup_iterations,
      options.iterations, options.check_iterations);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    text += fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:2} [0000:00:00] {}\n", rank, 0,
                        ranks[rank].pid, ranks[rank].host, ranks[rank].device, ranks[rank].device_name);
  }
  return text + fmt::format("#\n# QCCL: {}\n#\n", description);
}

std::string table_heading(const PerfOptions& options, const std::optional<Compression>& compression) {
  const bool is_one_of_several = compression && options.compressions.size() > 1;
  return (is_one_of_several ? fmt::format("# compression: {}\n#\n", compression->to_string()) : "") +
         column_names(options);
}

std::string row_text(const PerfOptions& options, const Row& row) {
  const Case& c = row.shape;
  std::string text =
      fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:>6}", c.bytes(), c.count, type_name(c.type), op_name(c), root_of(c));
  text += placement_text(row.out_of_place) + placement_text(row.in_place);
  if (options.timestamps) text += fmt::format("{:>21}", time_of_day());
  return text + own_columns(row.out_of_place) + "\n";
}

std::string footer(const PerfOptions& options, const Verdict& verdict) {
  const char* bandwidth = verdict.least_busbw == 0 ? "" : verdict.bandwidth_ok() ? "OK" : "FAILED";
  std::string text = fmt::format("# {:<20} : {} {}\n", "Out of bounds values", verdict.failed_checks,
                                 verdict.checks_ok() ? "OK" : "FAILED");
  text += fmt::format("# {:<20} : {:g} {}\n", "Avg bus bandwidth", verdict.average_busbw, bandwidth);
  return text + fmt::format("#\n# Collective test concluded: {}\n#\n\n", test_name(options));
}

std::string json_text(const PerfOptions& options, const PerfReport& report) {
  Json document;
  document["header"] = header_object(options, report);
  document["results"] = Json::array();
  for (const Row& row : report.rows) {
    document["results"].push_back(result(row.shape, false, row.out_of_place));
    document["results"].push_back(result(row.shape, true, row.in_place));
  }
  document["out_of_bounds"] = {{"count", report.verdict.failed_checks}, {"ok", report.verdict.checks_ok()}};
  document["average_busbw_GBps"] = report.verdict.average_busbw;
  return document.dump(2);
}

}  // namespace qccl::tools
