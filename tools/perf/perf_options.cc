#include "tools/perf/perf_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/plan.h"
#include "tools/command_line.h"

namespace qccl::tools {
namespace {

const Names<Operation> kOperations = {
    {"all_reduce", Collective::all_reduce}, {"broadcast", Collective::broadcast},
    {"all_gather", Collective::all_gather}, {"reduce_scatter", Collective::reduce_scatter},
    {"reduce", Collective::reduce},         {"gather", Collective::gather},
    {"scatter", Collective::scatter},       {"all_to_all", Collective::all_to_all},
    {"alltoall", Collective::all_to_all},   {"sendrecv", kSendrecv},
    {"barrier", Collective::barrier}};
const Names<DataType> kTypes = {
    {"int8", DataType::int8},     {"uint8", DataType::uint8},    {"int16", DataType::int16},
    {"uint16", DataType::uint16}, {"int32", DataType::int32},    {"uint32", DataType::uint32},
    {"int64", DataType::int64},   {"uint64", DataType::uint64},  {"half", DataType::float16},
    {"float", DataType::float32}, {"double", DataType::float64}, {"bfloat16", DataType::bfloat16},
    {"bool", DataType::boolean}};
const Names<ReduceOp> kOps = {{"sum", ReduceOp::sum},      {"prod", ReduceOp::prod},  {"min", ReduceOp::min},
                              {"max", ReduceOp::max},      {"avg", ReduceOp::avg},    {"mulsum", ReduceOp::premul_sum},
                              {"band", ReduceOp::bit_and}, {"bor", ReduceOp::bit_or}, {"bxor", ReduceOp::bit_xor}};

const Names<DeviceKind> kDevices = {{"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}};

constexpr const char* kFooter =
    R"(COLLECTIVE is all_reduce, broadcast, all_gather, reduce_scatter, reduce, gather, scatter, all_to_all
(or alltoall), sendrecv, in which every rank sends to the next, or barrier, which has one row without a
size. Under the name all_reduce_perf (and so on) the program takes nccl-tests' command line as it is.
Sizes take K, M or G (binary). nccl-tests does not have int16, uint16 and bool, nor band, bor and bxor,
which are for integers and bool; -d all and -o all include them.

The first columns are nccl-tests'. The others are for the out-of-place run: bytes a rank puts on the wire
per operation (mean over ranks, headers included); how many times smaller the payload is than in an
uncompressed run of the same algorithm; the largest error against an exact reduction; the largest
allowed error. Uncompressed results must be exact, averages within 2 ulp, compressed results within the
codec's stated bound, and all ranks must hold the same bits. #wrong counts elements.

With --device cuda the buffers are in the memory of NVIDIA GPUs, where rank r of a host takes GPU r modulo their
number, and each rank's calls name a stream of its own (docs/gpu.md). Checks copy the results back.

With --compression sums and averages are compressed by the library's rules, from 64 KiB on; all_gather,
all_to_all and broadcast at every size, because each call then asks for it. With several codecs each has
a table with "# compression" above it, and the last lines are about all of them.

all_to_all and sendrecv have no in-place form: their input is first copied aside, which is timed.

Exit code: 0; 7 if a result is wrong or the average is below 0.9 NCCL_TESTS_MIN_BW; 6 for wrong
flags; 255 for wrong sizes; 4 if an operation timed out; 3 for other errors of the library; 1.

Examples:
  qccl perf all_reduce -b 4 -e 64M -f 2 -g 4
  qccl perf all_reduce -b 64M -e 64M -g 4 --compression minmax:bits=4 --link-rate 1gbit
  qccl perf all_reduce -b 64K -e 64M -f 4 -g 4 --compression none,cast,minmax:bits=4 --plot codecs.png
  qccl perf all_gather -b 1M -e 64M -f 4 -g 4 --compression none --compression minmax:bits=8
  qccl perf broadcast -b 1M -e 8M -i 1M -d all -g 2 --transport tcp --json broadcast.json
  RING_ALLREDUCE_VERSION=new BITS=8 all_reduce_perf -b 4 -e 1G -d float -f 2 -n 5 -w 1 -g 4
  qccl perf all_reduce -b 64K -e 256M -f 4 -g 2 --device cuda --compression none,minmax:bits=8
  qccl run -n 4 -- qccl perf all_gather -b 1M -e 32M -f 2
)";

template <class T>
std::string name_in(const Names<T>& names, T value) {
  const auto found = std::ranges::find(names, value, &std::pair<std::string, T>::second);
  return found == names.end() ? "?" : found->first;
}

[[noreturn]] void refuse(const std::string& text, int code = kPerfInvalidUsage) { throw ValueError(text, code); }

// ---- checks of the flags together

// A barrier has one row without a size.
void check_barrier(const CLI::App& app, PerfOptions& options) {
  for (const char* flag : {"-b", "-e", "-i", "-f", "--plot"}) {
    if (app.count(flag) > 0) refuse("a barrier has no size: -b, -e, -i, -f and --plot are not for it");
  }
  options.min_bytes = options.max_bytes = 0;
}

void check_sizes(const PerfOptions& options) {
  if (options.min_bytes > options.max_bytes) {
    refuse(fmt::format("invalid sizes for 'minbytes' and 'maxbytes': {} > {}", options.min_bytes, options.max_bytes),
           kPerfInvalidSizes);
  }
  const bool moves = options.step_factor > 1 ? options.min_bytes > 0 : options.step_bytes > 0;
  if (!moves && options.min_bytes < options.max_bytes) {
    refuse("a step of 0 bytes never gets from minbytes to maxbytes", kPerfInvalidSizes);
  }
}

void check_operation(const PerfOptions& options) {
  const bool reduces = options.collective && is_reduction(*options.collective);
  if (!reduces || options.types.size() > 1 || options.ops.size() > 1) return;
  if (supports(options.types[0], options.ops[0])) return;
  const bool is_bitwise = supports(DataType::uint8, options.ops[0]);
  refuse(fmt::format("{} is for {}, not for {}", op_name(options.ops[0]),
                     is_bitwise ? "integers and bool" : "half, float, double and bfloat16",
                     type_name(options.types[0])));
}

void check_algorithm(const PerfOptions& options) {
  if (options.algorithm == Algorithm::automatic) return;
  if (options.collective && plan::has_algorithm(*options.collective, options.algorithm)) return;
  std::string names = options.collective ? "" : " auto";
  if (options.collective) {
    for (const Algorithm each : plan::algorithms_of(*options.collective)) names += fmt::format(" {}", to_string(each));
  }
  refuse(
      fmt::format("--algorithm {}: {} has only{}", to_string(options.algorithm), name_of(options.collective), names));
}

// Refuses a compression that would have no effect.
void check_compressions(const PerfOptions& options) {
  const bool reduces = options.collective && is_reduction(*options.collective);
  const bool compresses = !std::ranges::all_of(options.compressions, &Compression::is_none);
  if (!compresses || reduces) return;
  if (!moves_compressed(options.collective)) {
    refuse(fmt::format(
        "--compression is for all_reduce, reduce_scatter, reduce, all_gather, all_to_all and broadcast, not for {}",
        name_of(options.collective)));
  }
  if (std::ranges::any_of(options.types, [](DataType type) { return is_compressible(type); })) return;
  refuse(fmt::format("--compression is for half, float and bfloat16, not for {}", type_name(options.types[0])));
}

// ---- flags

void add_size(CLI::App& app, const std::string& flags, std::uint64_t& size, const std::string& description) {
  const std::string name = flags.substr(flags.rfind('-') + 1);
  const auto take = [&size, name](const std::string& text) {
    const auto parsed = parse_size(text);
    if (!parsed) refuse(fmt::format("invalid size '{}' specified for '{}'", text, name), kPerfInvalidSizes);
    size = *parsed;
  };
  app.add_option_function<std::string>(flags, take, description);
}

// An option whose value is a name, or "all".
template <class T>
void add_names(CLI::App& app, const std::string& flags, std::vector<T>& values, const Names<T>& names,
               const std::string& otherwise) {
  const auto take = [&values, &names, flags](const std::string& word) {
    if (word != "all") {
      values = {value_named(names, flags, word, " all")};
      return;
    }
    values.clear();
    for (const auto& [name, value] : names) values.push_back(value);
  };
  app.add_option_function<std::string>(flags, take, fmt::format("{} all (default {})", names_text(names), otherwise));
}

void take_compressions(const std::vector<std::string>& lists, std::vector<Compression>& compressions) {
  for (const std::string& list : lists) {
    for (const std::string& spec : split_compressions(list)) {
      try {
        compressions.push_back(Compression::parse(spec));
      } catch (const Error& error) {
        refuse(fmt::format("--compression: {}", error.what()));
      }
    }
  }
}

void add_nccl_flags(CLI::App& app, PerfOptions& options) {
  const auto add_count = [&](const char* flags, int& count, int least, const char* description) {
    app.add_option(flags, count, description)->check(CLI::Range(least, 1000000));
  };
  app.add_option("-g,--ngpus,--ranks", options.ranks, "Ranks to start on this machine (default 1)")
      ->check(CLI::Range(1, 1024));
  add_size(app, "-b,--minbytes", options.min_bytes, "Size to start with (default 32M)");
  add_size(app, "-e,--maxbytes", options.max_bytes, "Size to end at (default 32M)");
  add_size(app, "-i,--stepbytes", options.step_bytes, "Increment between sizes (default 1M)");
  app.add_option("-f,--stepfactor", options.step_factor, "Factor between sizes, instead of -i (default off)");
  add_count("-n,--iters", options.iterations, 1, "Timed iterations (default 20)");
  add_count("-w,--warmup_iters", options.warmup_iterations, 0, "Untimed iterations before (default 1)");
  add_count("-N,--run_cycles", options.run_cycles, 0, "How often to run all sizes; 0: for ever (default 1)");
  add_count("-c,--check", options.check_iterations, 0, "How often to check each result; 0: not (default 1)");
  add_names(app, "-d,--datatype", options.types, kTypes, "float");
  add_names(app, "-o,--op", options.ops, kOps, "sum");
  app.add_option("-r,--root", options.root, "Root of a rooted collective; -1: every one in turn (default 0)");
  app.add_option("-z,--blocking", options.blocking, "1 or 3: a barrier, not timed, after each iteration (default 0)")
      ->check(CLI::Range(0, 3));
  app.add_option("-a,--average", options.average, "Time shown: 0 rank 0's, 1 mean, 2 least, 3 largest of all ranks")
      ->check(CLI::Range(0, 3));
  app.add_option("-S,--report_timestamps", options.timestamps, "1: end each row with the time of day")
      ->check(CLI::Range(0, 1));
  add_seconds(app, "-T,--timeout", options.timeout_seconds, CLI::NonNegativeNumber,
              "Seconds until an operation fails; 0: the library's default");
}

void add_own_flags(CLI::App& app, PerfOptions& options) {
  Names<Algorithm> algorithms = algorithm_names();
  algorithms.insert(algorithms.begin(), {"auto", Algorithm::automatic});
  add_named(app, "--algorithm", options.algorithm, algorithms, names_text(algorithms) + " (default auto)");
  app.add_option_function<std::vector<std::string>>(
         "--compression", [&](const auto& lists) { take_compressions(lists, options.compressions); },
         "What is sent: none, cast:type=bf16, minmax:bits=4,bucket_size=1024 (default: QCCL_COMPRESSION's). "
         "Several, given apart or with commas or semicolons between, get a table each")
      ->allow_extra_args(false);
  add_named(app, "--device", options.device, kDevices,
            "Where buffers are: cpu (default) or cuda, which is a GPU's memory");
  add_link_flags(app, options.job);
  app.add_option("-J,--json,--output_file", options.json_file, "Write the results to this file as well");
  app.add_option("--plot", options.plot_file,
                 fmt::format("Draw bus bandwidth against size, a line for each codec, to this file: {} (needs a Python "
                             "with matplotlib)",
                             kPictureEndings));
}

// A flag of nccl-tests that has only one value here, and the reason.
struct FixedFlag {
  const char* names;
  int value;
  const char* reason;
};

constexpr FixedFlag kFixedFlags[] = {
    {"-t,--nthreads", 1, "a rank is a process of its own: use -g"},
    {"-m,--agg_iters", 1, "operations are not aggregated"},
    {"-y,--stream_null", 0, "with --device cuda each rank has a stream of its own"},
    {"-G,--cudagraph", 0, "there are no CUDA graphs"},
    {"-C,--report_cputime", 0, "an operation's time is what the caller waits"},
    {"-R,--local_register", 0, "buffers are not registered"},
    {"-x,--cta_policy", -1, "there are no CTAs"},
    {"-D,--device_implementation", 0, "there are no device implementations"},
    {"-V,--device_cta_count", 16, "there are no CTAs"},
    {"-M,--memory", 0, "memory is not reported"},
    {"-u,--unalign", 0, "buffers are always aligned"},
    {"-I,--per_iter_timing", 0, "--json has the least, median and largest time"},
    {"-K,--per_iter_skip", 0, "use -w"},
};

// Such a flag is accepted with its only value; any other is rejected with the reason.
void add_fixed_flags(CLI::App& app) {
  for (const FixedFlag& flag : kFixedFlags) {
    const auto check = [&flag](const std::string& text) {
      if (text == std::to_string(flag.value)) return std::string();
      return fmt::format("{} is not available here, only {}: {}", text, flag.value, flag.reason);
    };
    app.add_option_function<int>(
           flag.names, [](int) {}, fmt::format("Only {}: {}", flag.value, flag.reason))
        ->check(CLI::Validator(check, ""))
        ->group("Flags of nccl-tests with one value");
  }
  // With one rank per process there is nothing to initialize one after the other.
  app.add_option_function<int>(
         "-p,--parallel_init", [](int) {}, "0 or 1: ranks always start in parallel")
      ->check(CLI::Range(0, 1))
      ->group("Flags of nccl-tests with one value");
}

}  // namespace

std::vector<std::string> split_compressions(const std::string& list) {
  std::vector<std::string> specs;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find_first_of(",;", begin), list.size());
    const std::string word = list.substr(begin, end - begin);
    const bool is_setting = word.find('=') != std::string::npos && word.find(':') == std::string::npos;
    const bool goes_on = is_setting && begin > 0 && list[begin - 1] == ',';
    if (goes_on) {
      specs.back() += "," + word;
    } else {
      specs.push_back(word);
    }
    begin = end + 1;
  }
  return specs;
}

std::string type_name(DataType type) { return name_in(kTypes, type); }

std::string op_name(ReduceOp op) { return name_in(kOps, op); }

std::optional<int> parse_perf_options(const std::vector<std::string>& arguments, PerfOptions& options) {
  CommandLine app("Times a collective and checks its results, with nccl-tests' flags and columns.", "qccl perf",
                  "COLLECTIVE [OPTIONS]", kFooter);
  add_named(app, "COLLECTIVE", options.collective, kOperations, "The first argument");
  add_nccl_flags(app, options);
  add_own_flags(app, options);
  add_fixed_flags(app);
  app.callback([&] {
    if (app.count("COLLECTIVE") == 0) refuse("which collective? There are: " + names_text(kOperations));
    options.collective == Collective::barrier ? check_barrier(app, options) : check_sizes(options);
    check_operation(options);
    check_algorithm(options);
    check_compressions(options);
  });
  return app.read(arguments, kPerfInvalidUsage);
}

}  // namespace qccl::tools
