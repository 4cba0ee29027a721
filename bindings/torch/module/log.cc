#include "module/log.h"

#include <optional>
#include <vector>

#include "errors.h"
#include "qccl/log.h"
#include "qccl/log_report.h"
#include "world.h"

namespace qccl::torch_binding {
namespace {

LogOptions options_of(const py::kwargs& settings) {
  LogOptions options = WorldRegistry::instance().log_options();
  const auto take = [&]<class T>(const char* key, T& target) {
    if (settings.contains(key)) target = settings[key].cast<T>();
  };
  take("enabled", options.enabled);
  take("verbose", options.verbose);
  take("prof_all", options.prof_all);
  take("prof_ops", options.prof_ops);
  take("debug", options.debug);
  take("capacity", options.capacity);
  take("file", options.file);
  return options;
}

py::dict log_options() {
  const LogOptions options = WorldRegistry::instance().log_options();
  py::dict result;
  result["enabled"] = options.enabled;
  result["verbose"] = options.verbose;
  result["prof_all"] = options.prof_all;
  result["prof_ops"] = options.prof_ops;
  result["debug"] = options.debug;
  result["capacity"] = options.capacity;
  result["file"] = options.file;
  return result;
}

py::dict to_python(const OperationRecord& record, const RankLog& log, BandwidthFormula formula) {
  const Bandwidth bandwidth = bandwidth_of(record, formula, log.world);
  py::dict result;
  result["operation"] = record.operation;
  result["name"] = record.name;
  result["group"] = record.group;
  result["group_id"] = record.group_id;
  result["group_size"] = record.group_size;
  result["sequence"] = record.sequence;
  result["is_message"] = record.is_message;
  result["peer"] = record.peer;
  result["count"] = record.count;
  result["type"] = std::string(to_string(record.type));
  result["algorithm"] = record.is_message ? std::string() : std::string(to_string(record.algorithm));
  result["path"] = std::string(to_string(record.path));
  result["compression"] = record.compression.to_string();
  result["bytes"] = record.bytes;
  result["wire_bytes"] = record.wire_bytes;
  result["payload_bytes"] = record.payload_bytes;
  result["plain_bytes"] = record.plain_bytes;
  result["compression_ratio"] = record.compression_ratio();
  result["posted_ns"] = record.times.posted_ns;
  result["started_ns"] = record.times.started_ns;
  result["ended_ns"] = record.times.ended_ns;
  result["latency_ms"] = record.latency_ms();
  result["algbw_gbps"] = bandwidth.algbw_gbps;
  result["busbw_gbps"] = bandwidth.busbw_gbps;
  result["error"] = record.error;
  return result;
}

BandwidthFormula formula_of(bool deepspeed) {
  return deepspeed ? BandwidthFormula::deepspeed : BandwidthFormula::nccl_tests;
}

py::list records(bool deepspeed) {
  const RankLog log = WorldRegistry::instance().read_log();
  py::list result;
  for (const OperationRecord& record : log.records) result.append(to_python(record, log, formula_of(deepspeed)));
  return result;
}

py::dict to_python(const OperationSummary& row) {
  py::dict result;
  result["name"] = row.name;
  result["bytes"] = row.bytes;
  result["count"] = row.count;
  result["total_ms"] = row.total_ms;
  result["average_ms"] = row.average_ms;
  result["min_ms"] = row.min_ms;
  result["p50_ms"] = row.p50_ms;
  result["p90_ms"] = row.p90_ms;
  result["p99_ms"] = row.p99_ms;
  result["max_ms"] = row.max_ms;
  result["algbw_gbps"] = row.algbw_gbps;
  result["busbw_gbps"] = row.busbw_gbps;
  result["wire_bytes"] = row.wire_bytes;
  result["compression_ratio"] = row.compression_ratio;
  return result;
}

// The rows, the two tables, the rank and the world size.
py::tuple summary(bool deepspeed) {
  const RankLog log = WorldRegistry::instance().read_log();
  const auto rows = summarize(log, formula_of(deepspeed));
  py::list list;
  for (const OperationSummary& row : rows) list.append(to_python(row));
  return py::make_tuple(list, latency_table(rows), wire_table(rows), log.rank, log.world);
}

// The fields of a record that find_stragglers() needs, as a tuple that Python can send between ranks.
using Latency = std::tuple<std::string, std::string, std::uint64_t, int, std::uint64_t, std::uint64_t, std::int64_t>;

std::vector<Latency> latencies() {
  std::vector<Latency> found;
  for (const OperationRecord& record : WorldRegistry::instance().read_log().records) {
    if (record.is_message || !record.error.empty()) continue;
    found.emplace_back(record.operation, record.name, record.group_id, record.group_size, record.sequence, record.bytes,
                       record.times.ended_ns - record.times.posted_ns);
  }
  return found;
}

RankLog log_of(int rank, const std::vector<Latency>& latencies) {
  RankLog log;
  log.rank = rank;
  for (const auto& [operation, name, group_id, group_size, sequence, bytes, ns] : latencies) {
    OperationRecord record;
    record.operation = operation;
    record.name = name;
    record.group_id = group_id;
    record.group_size = group_size;
    record.sequence = sequence;
    record.bytes = bytes;
    record.times.ended_ns = ns;
    log.records.push_back(std::move(record));
  }
  return log;
}

py::dict to_python(const StragglerReport::Operations& row) {
  py::dict result;
  result["name"] = row.name;
  result["bytes"] = row.bytes;
  result["count"] = row.count;
  result["total_comm_ms"] = row.total_comm_ms;
  result["total_straggler_ms"] = row.total_straggler_ms;
  result["average_comm_ms"] = row.average_comm_ms;
  result["average_straggler_ms"] = row.average_straggler_ms;
  return result;
}

// Takes latencies() of each rank; returns rows of operations, rows of ranks, and the table.
py::tuple stragglers(const std::vector<std::vector<Latency>>& of_ranks, int viewer) {
  std::vector<RankLog> logs;
  for (const auto& each : of_ranks) logs.push_back(log_of(static_cast<int>(logs.size()), each));
  const StragglerReport report = find_stragglers(logs, viewer);
  py::list operations, ranks;
  for (const auto& row : report.operations) operations.append(to_python(row));
  for (const auto& row : report.ranks) {
    py::dict rank;
    rank["rank"] = row.rank;
    rank["last_in"] = row.last_in;
    rank["waited_for_ms"] = row.waited_for_ms;
    rank["waited_ms"] = row.waited_ms;
    ranks.append(rank);
  }
  return py::make_tuple(operations, ranks, straggler_table(report));
}

std::string text_of(std::string (*write)(std::span<const RankLog>)) {
  const RankLog log = WorldRegistry::instance().read_log();
  return write({&log, 1});
}

}  // namespace

std::string log_caller() {
  if (!WorldRegistry::instance().log_says_caller()) return {};
  const py::gil_scoped_acquire held;
  return py::module_::import("qccl._log").attr("_caller")().cast<std::string>();
}

void define_log(py::module& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  module.def("configure_log", [](const py::kwargs& settings) {
    const LogOptions options = options_of(settings);
    const py::gil_scoped_release released;
    with_torch_errors([&] { WorldRegistry::instance().configure_log(options); });
  });
  module.def("log_options", &log_options);
  module.def(
      "clear_log", [] { WorldRegistry::instance().clear_log(); }, Released());
  module.def("log_records", &records, py::arg("deepspeed_formulas"));
  module.def("log_summary", &summary, py::arg("deepspeed_formulas"));
  module.def("log_size_text", &size_text);
  module.def("log_latencies", &latencies);
  module.def("log_stragglers", &stragglers, py::arg("latencies"), py::arg("viewer"));
  module.def(
      "log_trace", [] { return text_of(&to_trace); }, Released());
  module.def(
      "log_csv", [] { return text_of(&to_csv); }, Released());
}

}  // namespace qccl::torch_binding
