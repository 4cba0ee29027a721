#include "tools/perf/perf_table.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace qccl::tools {
namespace {

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
  header["communicator"] = report.description;
  header["options"] = options_object(options);
  return header;
}

}  // namespace

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
