// `qccl perf`: times a collective and checks its results.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

#include "tools/command_line.h"
#include "tools/perf/perf_measure.h"
#include "tools/perf/perf_options.h"
#include "tools/perf/perf_table.h"
#include "tools/run/launcher.h"

namespace qccl::tools {
namespace {

bool is_launched() { return std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr; }

double number_in(const char* variable, double otherwise = 0) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atof(text) : otherwise;
}

std::optional<std::uint64_t> available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::strtoull(line.c_str() + 13, nullptr, 10) * 1024;
  }
  return std::nullopt;
}

// Empty if this host has memory for its ranks' buffers, else what is missing. The process that starts the ranks checks
// it, or the host's first rank under another launcher.
std::string memory_problem(const PerfOptions& options, bool launches) {
  if (!launches && number_in("LOCAL_RANK") != 0) return {};
  const double ranks = launches ? options.ranks : number_in("LOCAL_WORLD_SIZE", 1);
  const auto available = available_bytes();
  // For buffers of a GPU: their contents in host memory, and what the library pins.
  const double buffers = options.device == DeviceKind::cuda ? 3 : 2;
  const double needed = buffers * static_cast<double>(options.max_bytes) * ranks;
  if (!available || needed <= static_cast<double>(*available)) return {};
  constexpr double kGiB = 1 << 30;
  return fmt::format("{} ranks with input and output of {} bytes need {:.1f} GiB, {:.1f} GiB are free: lower -e", ranks,
                     options.max_bytes, needed / kGiB, static_cast<double>(*available) / kGiB);
}

// Starts this program again, once per rank.
int launch_ranks(const PerfOptions& options, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe").string(), "perf"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch({.program = "qccl perf", .ranks = options.ranks, .command = std::move(command)});
}

Communicator join(const PerfOptions& options) {
  for (const auto& [name, value] : options.job.variables()) ::setenv(name.c_str(), value.c_str(), 1);
  InitOptions init_options;
  if (options.timeout_seconds > 0) init_options.timeout = to_milliseconds(options.timeout_seconds);
  return init(init_options);
}

std::string host_name() {
  char name[sizeof(RankInfo::host)] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

RankInfo own_info(const BufferMemory& memory) {
  RankInfo info;
  info.pid = ::getpid();
  info.device = memory.device();
  host_name().copy(info.host, sizeof(info.host) - 1);
  memory.name().copy(info.device_name, sizeof(info.device_name) - 1);
  return info;
}

// Runs all sizes, types, operations and roots that the flags ask for, on all ranks.
class Session {
 public:
  Session(const PerfOptions& options, Communicator communicator, std::unique_ptr<BufferMemory> memory)
      : options_(options), bench_(std::move(communicator), std::move(memory), options, options.max_bytes) {}

  int run() {
    report_.ranks = gather(bench_.communicator(), own_info(bench_.memory()));
    report_.description = bench_.communicator().describe();
    print(header(options_, report_.ranks, report_.description));
    for (int cycle = 0; options_.run_cycles == 0 || cycle < options_.run_cycles; ++cycle) run_all();
    return conclude();
  }

 private:
  bool prints() { return bench_.communicator().rank() == 0; }

  void print(const std::string& text) {
    if (!prints()) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  void run_all() {
    if (options_.compressions.empty()) run_table(std::nullopt);
    for (const Compression& compression : options_.compressions) {
      bench_.communicator().set_compression(compression);
      run_table(compression);
    }
  }

  void run_table(std::optional<Compression> compression) {
    print(table_heading(options_, compression));
    Case c;
    c.collective = options_.collective;
    c.world = bench_.communicator().size();
    c.compression = compression;
    for (const DataType type : options_.types) {
      c.type = type;
      run_ops(c);
    }
  }

  void run_ops(Case c) {
    if (!c.is_reduction()) return run_roots(c);
    for (const ReduceOp op : options_.ops) {
      if (!supports(c.type, op)) continue;  // happens only if -d or -o is "all"
      c.op = op;
      run_roots(c);
    }
  }

  void run_roots(Case c) {
    const int first = c.is_rooted() && options_.root >= 0 ? options_.root : 0;
    const int last = c.is_rooted() && options_.root < 0 ? c.world - 1 : first;
    for (c.root = first; c.root <= last; ++c.root) run_sizes(c);
  }

  void run_sizes(Case c) {
    warm_up(c, options_.max_bytes);
    warm_up(c, options_.min_bytes);
    for (std::uint64_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes = next_size(bytes)) {
      c.count = count_for(c.collective, bytes, c.type, c.world);
      run_row(c);
    }
  }

  std::uint64_t next_size(std::uint64_t bytes) const {
    if (options_.min_bytes == options_.max_bytes) return options_.max_bytes + 1;
    return options_.step_factor > 1 ? bytes * options_.step_factor : bytes + options_.step_bytes;
  }

  void warm_up(Case c, std::uint64_t bytes) {
    c.count = count_for(c.collective, bytes, c.type, c.world);
    bench_.warm_up(c);
  }

  void run_row(Case c) {
    Row row;
    c.in_place = false;
    row.out_of_place = bench_.measure(c);
    c.in_place = true;
    row.in_place = bench_.measure(c);
    row.shape = c;
    print(row_text(options_, row));
    for (const Measurement* m : {&row.out_of_place, &row.in_place}) {
      report_.verdict.failed_checks += m->is_wrong();
      busbw_sum_ += m->busbw;
      ++measurements_;
    }
    const bool is_kept = !options_.json_file.empty() || !options_.plot_file.empty();
    if (is_kept && prints()) report_.rows.push_back(row);
  }

  int conclude() {
    Verdict& verdict = report_.verdict;
    verdict.average_busbw = measurements_ == 0 ? 0 : busbw_sum_ / measurements_;
    verdict.least_busbw = number_in("NCCL_TESTS_MIN_BW");
    print(footer(options_, verdict));
    int code = verdict.checks_ok() && verdict.bandwidth_ok() ? kPerfOk : kPerfWrongResult;
    if (prints() && !write_files()) code = kPerfInternalError;
    bench_.communicator().barrier();
    bench_.communicator().close();
    return code;
  }

  // Returns false, after printing the reason, if a file could not be written.
  bool write_files() const {
    const std::string json = json_text(options_, report_);
    std::optional<std::string> problem;
    if (!options_.json_file.empty()) problem = write_text(options_.json_file, json + "\n");
    if (!problem && !options_.plot_file.empty()) problem = draw_plot("perf", json, options_.plot_file);
    if (problem) fmt::print(stderr, "qccl perf: {}\n", *problem);
    return !problem;
  }

  const PerfOptions& options_;
  Bench bench_;
  PerfReport report_;
  double busbw_sum_ = 0;
  int measurements_ = 0;
};

int exit_code_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::deadline_exceeded: return kPerfTimeout;
    case ErrorKind::invalid_argument:
    case ErrorKind::unsupported: return kPerfInvalidUsage;
    default: return kPerfLibraryError;
  }
}

int fail(int code, const std::string& why) {
  fmt::print(stderr, " .. {} pid {}: Test failure: {}\n", host_name(), ::getpid(), why);
  return code;
}

int run_rank(const PerfOptions& options) {
  try {
    Communicator communicator = join(options);
    if (options.ranks > 1 && options.ranks != communicator.size()) {
      return fail(kPerfInvalidUsage, fmt::format("-g {} asks for other ranks than the {} that were launched",
                                                 options.ranks, communicator.size()));
    }
    if (options.root >= communicator.size()) {
      return fail(kPerfInvalidUsage, fmt::format("-r {} is no rank of {}", options.root, communicator.size()));
    }
    const auto make_buffers = options.device == DeviceKind::cuda ? make_device_buffers : make_host_buffers;
    auto memory = make_buffers(static_cast<int>(number_in("LOCAL_RANK")));
    return Session(options, std::move(communicator), std::move(memory)).run();
  } catch (const Error& error) {
    return fail(exit_code_of(error), error.what());
  } catch (const std::bad_alloc&) {
    return fail(kPerfInternalError, "no memory for the buffers: lower -e");
  }
}

}  // namespace

int perf_main(const std::vector<std::string>& arguments) {
  without_end_of_job_line();
  PerfOptions options;
  if (const auto code = parse_perf_options(arguments, options)) return *code;
  const bool launches = options.ranks > 1 && !is_launched();
  if (!options.plot_file.empty() && !is_launched()) {
    if (const auto problem = picture_name_problem(options.plot_file)) {
      return fail(kPerfInvalidUsage, "--plot: " + *problem);
    }
    if (const auto problem = plot_problem()) return fail(kPerfInternalError, "--plot: " + *problem);
  }
  if (const auto problem = options.device == DeviceKind::cuda ? problem_of_devices() : std::nullopt) {
    return fail(kPerfInvalidUsage,
                fmt::format("--device cuda: {}, or leave --device out to measure host memory", *problem));
  }
  if (const std::string problem = memory_problem(options, launches); !problem.empty()) {
    return fail(kPerfInternalError, problem);
  }
  return launches ? launch_ranks(options, arguments) : run_rank(options);
}

}  // namespace qccl::tools
