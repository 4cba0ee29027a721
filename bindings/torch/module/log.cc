// The communication log for Python: one setting for all jobs of the process, and their records.
#include <torch/csrc/utils/pybind.h>

#include <span>
#include <tuple>
#include <vector>

#include "qccl/log.h"
#include "qccl/log_report.h"
#include "shared_job.h"
#include "work/torch_call.h"

namespace qccl::torch_binding {
namespace {

using py::literals::operator""_a;

template <class Visit>
void visit_settings(LogOptions& options, Visit visit) {
  visit("enabled", options.enabled);
  visit("verbose", options.verbose);
  visit("prof_all", options.prof_all);
  visit("prof_ops", options.prof_ops);
  visit("debug", options.debug);
  visit("capacity", options.capacity);
  visit("file", options.file);
}

void configure(const py::kwargs& settings) {
  LogOptions options = JobRegistry::instance().log_options();
  visit_settings(options, [&]<class T>(const char* key, T& setting) {
    if (settings.contains(key)) setting = settings[key].template cast<T>();
  });
  const py::gil_scoped_release released;
  JobRegistry::instance().configure_log(options);
}

py::dict log_options() {
  LogOptions options = JobRegistry::instance().log_options();
  py::dict settings;
  visit_settings(options, [&](const char* key, const auto& setting) { settings[key] = setting; });
  return settings;
}

template <class Field>
py::object to_python(const Field& field) {
  if constexpr (std::is_enum_v<Field>) {
    return py::str(std::string(to_string(field)));
  } else {
    return py::cast(field);
  }
}
py::object to_python(const Compression& compression) { return py::str(compression.to_string()); }
py::object to_python(Hexadecimal<const std::uint64_t> field) { return py::int_(field.number); }

BandwidthFormula formula_of(bool deepspeed) {
  return deepspeed ? BandwidthFormula::deepspeed : BandwidthFormula::nccl_tests;
}

py::list records(bool deepspeed) {
  const RankLog log = JobRegistry::instance().read_log();
  py::list result;
  for (const OperationRecord& record : log.records) {
    py::dict fields;
    visit_fields(record, [&](const char* key, const auto& field) { fields[key] = to_python(field); });
    if (record.is_message) fields["algorithm"] = "";
    fields["compression_ratio"] = record.compression_ratio();
    fields["latency_ms"] = record.latency_ms();
    const Bandwidth bandwidth = bandwidth_of(record, formula_of(deepspeed), log.world);
    fields["algbw_gbps"] = bandwidth.algbw_gbps;
    fields["busbw_gbps"] = bandwidth.busbw_gbps;
    result.append(fields);
  }
  return result;
}

// Rows have DeepSpeed's keys, and further ones.
py::dict to_python(const OperationSummary& row) {
  return py::dict("count"_a = row.count, "total_latency_ms"_a = row.total_ms, "avg_latency_ms"_a = row.average_ms,
                  "tput_avg_gbps"_a = row.algbw_gbps, "busbw_avg_gbps"_a = row.busbw_gbps, "min_ms"_a = row.min_ms,
                  "p50_ms"_a = row.p50_ms, "p90_ms"_a = row.p90_ms, "p99_ms"_a = row.p99_ms, "max_ms"_a = row.max_ms,
                  "wire_bytes"_a = row.wire_bytes, "compression_ratio"_a = row.compression_ratio);
}

py::dict to_python(const StragglerReport::Operations& row) {
  return py::dict("count"_a = row.count, "total_comm_lat_ms"_a = row.total_comm_ms,
                  "total_straggler_ms"_a = row.total_straggler_ms, "avg_comm_lat_ms"_a = row.average_comm_ms,
                  "avg_straggler_ms"_a = row.average_straggler_ms);
}

py::dict to_python(const StragglerReport::Rank& row) {
  return py::dict("rank"_a = row.rank, "last_in"_a = row.last_in, "waited_for_ms"_a = row.waited_for_ms,
                  "waited_ms"_a = row.waited_ms);
}

// {operation: {bytes: row}}
template <class Row>
py::dict by_operation(const std::vector<Row>& rows) {
  py::dict operations;
  for (const Row& row : rows) {
    const py::str name(row.name);
    if (!operations.contains(name)) operations[name] = py::dict();
    py::dict fields = to_python(row);
    fields["msg_size_bytes"] = row.bytes;
    fields["msg_size_str"] = size_text(row.bytes);
    operations[name][py::int_(row.bytes)] = fields;
  }
  return operations;
}

// The rows, the two tables, the rank and the world size.
py::tuple summary(bool deepspeed) {
  const RankLog log = JobRegistry::instance().read_log();
  const auto rows = summarize(log, formula_of(deepspeed));
  return py::make_tuple(by_operation(rows), latency_table(rows), wire_table(rows), log.rank, log.world);
}

// The fields of a record that find_stragglers() needs, with the latency as the end. Python sends them between ranks as
// tuples.
template <class Record>
auto compared_fields(Record& record) {
  return std::tie(record.operation, record.name, record.group_id, record.group_size, record.sequence, record.bytes,
                  record.times.ended_ns);
}
using ComparedFields =
    std::tuple<std::string, std::string, std::uint64_t, int, std::uint64_t, std::uint64_t, std::int64_t>;

std::vector<ComparedFields> latencies() {
  std::vector<ComparedFields> found;
  for (OperationRecord& record : JobRegistry::instance().read_log().records) {
    if (record.is_message || !record.error.empty()) continue;
    record.times.ended_ns -= record.times.posted_ns;
    found.emplace_back(compared_fields(record));
  }
  return found;
}

// Takes latencies() of each rank; returns rows of operations, rows of ranks, and the table.
py::tuple stragglers(const std::vector<std::vector<ComparedFields>>& of_ranks, int viewer) {
  std::vector<RankLog> logs(of_ranks.size());
  for (std::size_t rank = 0; rank < logs.size(); ++rank) {
    logs[rank].rank = static_cast<int>(rank);
    logs[rank].records.resize(of_ranks[rank].size());
    for (std::size_t i = 0; i < of_ranks[rank].size(); ++i) {
      compared_fields(logs[rank].records[i]) = of_ranks[rank][i];
    }
  }
  const StragglerReport report = find_stragglers(logs, viewer);
  py::list ranks;
  for (const StragglerReport::Rank& row : report.ranks) ranks.append(to_python(row));
  return py::make_tuple(by_operation(report.operations), ranks, straggler_table(report));
}

template <std::string (*write)(std::span<const RankLog>)>
std::string written_log() {
  const RankLog log = JobRegistry::instance().read_log();
  return write({&log, 1});
}

}  // namespace

std::string log_caller() {
  if (!JobRegistry::instance().log_says_caller()) return {};
  const py::gil_scoped_acquire held;
  return py::module_::import("qccl._log").attr("_caller")().cast<std::string>();
}

void bind_log(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  module.def("configure_log", &configure);
  module.def("log_options", &log_options);
  module.def(
      "clear_log", [] { JobRegistry::instance().clear_log(); }, Released());
  module.def("log_records", &records, py::arg("deepspeed_formulas"));
  module.def("log_summary", &summary, py::arg("deepspeed_formulas"));
  module.def("log_latencies", &latencies);
  module.def("log_stragglers", &stragglers, py::arg("latencies"), py::arg("viewer"));
  module.def("log_trace", &written_log<&to_trace>, Released());
  module.def("log_csv", &written_log<&to_csv>, Released());
}

}  // namespace qccl::torch_binding
