#include "tools/perf/perf_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <span>
#include <utility>

#include "plan/plan.h"
#include "tools/plot.h"

namespace qccl::tools {
namespace {

template <class T>
using Names = std::vector<std::pair<std::string, T>>;

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
const Names<Algorithm> kAlgorithms = {{"auto", Algorithm::automatic},
                                      {"one_shot", Algorithm::one_shot},
                                      {"sra", Algorithm::sra},
                                      {"ring", Algorithm::ring},
                                      {"tree", Algorithm::tree},
                                      {"binomial", Algorithm::binomial},
                                      {"pairwise", Algorithm::pairwise},
                                      {"hierarchical", Algorithm::hierarchical},
                                      {"recursive_doubling", Algorithm::recursive_doubling}};

constexpr const char* kFooter =
    R"(COLLECTIVE is all_reduce, broadcast, all_gather, reduce_scatter, reduce, gather, scatter, all_to_all
(or alltoall), sendrecv, in which every rank sends to the next, or barrier, which has one row, of no
size. Under the name all_reduce_perf (and so on) the program takes nccl-tests' command line as it is.
Sizes take K, M or G (binary). int16, uint16 and bool, and band, bor and bxor, which are for integers
and bool, nccl-tests does not have; -d all and -o all mean them, too.

Columns are nccl-tests'. Behind them, for the out-of-place run: bytes a rank put on the wire per
operation (mean over ranks, headers included); how many times less payload that is than an
uncompressed run of the same algorithm; the largest error against an exact reduction; the largest
error that is allowed. Uncompressed results must be exact, averages within 2 ulp; compressed ones
within the codec's stated bound; and all ranks must hold the same bits. #wrong counts elements.

With --compression sums and averages are compressed by the library's rules, from 64 KiB on; all_gather,
all_to_all and broadcast in every size, because each call then asks for it. Where there are several
codecs each has a table, "# compression" above it names it, and the last lines are about all of them.

all_to_all and sendrecv have no form in place: there, the input is copied aside first, which is timed.

Exit code: 0; 7 if a result is wrong or the average is below 0.9 NCCL_TESTS_MIN_BW; 6 for wrong
flags; 255 for wrong sizes; 4 if an operation timed out; 3 for other errors of the library; 1.

Examples:
  qccl perf all_reduce -b 4 -e 64M -f 2 -g 4
  qccl perf all_reduce -b 64M -e 64M -g 4 --compression minmax:bits=4 --link-rate 1gbit
  qccl perf all_reduce -b 64K -e 64M -f 4 -g 4 --compression none,cast,minmax:bits=4 --plot codecs.png
  qccl perf all_gather -b 1M -e 64M -f 4 -g 4 --compression none --compression minmax:bits=8
  qccl perf broadcast -b 1M -e 8M -i 1M -d all -g 2 --transport tcp --json broadcast.json
  RING_ALLREDUCE_VERSION=new BITS=8 all_reduce_perf -b 4 -e 1G -d float -f 2 -n 5 -w 1 -g 4
  qccl run -n 4 -- qccl perf all_gather -b 1M -e 32M -f 2
)";

template <class T>
std::string list_names(const Names<T>& table, const char* last = nullptr) {
  std::string text;
  for (const auto& [name, value] : table) text += (text.empty() ? "" : " ") + name;
  return last != nullptr ? text + " " + last : text;
}

template <class T>
std::string name_in(const Names<T>& table, T value) {
  for (const auto& [name, named] : table) {
    if (named == value) return name;
  }
  return "?";
}

// The text of the flags, before it is parsed.
struct Words {
  std::string min_bytes, max_bytes, step_bytes;
  std::string type = "float";
  std::string op = "sum";
  std::string algorithm = "auto";
  std::vector<std::string> compressions;
  int timestamps = 0;
};

// "32M", "1.5G", "4096".
std::optional<std::uint64_t> parse_size(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > 1e18) return std::nullopt;
  const std::string unit(end, text.data() + text.size());
  double factor = 1;
  if (unit == "K" || unit == "k")
    factor = 1 << 10;
  else if (unit == "M" || unit == "m")
    factor = 1 << 20;
  else if (unit == "G" || unit == "g")
    factor = 1 << 30;
  else if (!unit.empty())
    return std::nullopt;
  return static_cast<std::uint64_t>(number * factor);
}

int usage_error(const std::string& text, int code = kPerfInvalidUsage) {
  fmt::print(stderr, "qccl perf: {}\n", text);
  return code;
}

// Sets `size` unless the text is empty. Returns an exit code if it is not a size.
std::optional<int> take_size(const std::string& text, const char* name, std::uint64_t& size) {
  if (text.empty()) return std::nullopt;
  const auto parsed = parse_size(text);
  if (!parsed) return usage_error(fmt::format("invalid size '{}' specified for '{}'", text, name), kPerfInvalidSizes);
  size = *parsed;
  return std::nullopt;
}

// A barrier has one row without a size.
std::optional<int> take_barrier(const Words& words, PerfOptions& options) {
  const bool has_sizes = !words.min_bytes.empty() || !words.max_bytes.empty() || !words.step_bytes.empty();
  if (has_sizes || options.step_factor != PerfOptions().step_factor || !options.plot_file.empty()) {
    return usage_error("a barrier has no size: -b, -e, -i, -f and --plot are not for it");
  }
  options.min_bytes = options.max_bytes = 0;
  return std::nullopt;
}

std::optional<int> take_sizes(const Words& words, PerfOptions& options) {
  if (options.collective == Collective::barrier) return take_barrier(words, options);
  if (auto code = take_size(words.min_bytes, "minbytes", options.min_bytes)) return code;
  if (auto code = take_size(words.max_bytes, "maxbytes", options.max_bytes)) return code;
  if (auto code = take_size(words.step_bytes, "stepbytes", options.step_bytes)) return code;
  if (options.min_bytes > options.max_bytes) {
    return usage_error(
        fmt::format("invalid sizes for 'minbytes' and 'maxbytes': {} > {}", options.min_bytes, options.max_bytes),
        kPerfInvalidSizes);
  }
  const bool moves = options.step_factor > 1 ? options.min_bytes > 0 : options.step_bytes > 0;
  if (!moves && options.min_bytes < options.max_bytes) {
    return usage_error("a step of 0 bytes never gets from minbytes to maxbytes", kPerfInvalidSizes);
  }
  return std::nullopt;
}

bool reduces(const PerfOptions& options) { return options.collective && is_reduction(*options.collective); }

// Rejects flags that would have no effect.
std::optional<int> refuse_idle_flags(const PerfOptions& options) {
  const auto name = name_of(options.collective);
  std::vector<Algorithm> all;
  if (options.collective) all = plan::algorithms_of(*options.collective);
  if (options.algorithm != Algorithm::automatic && std::find(all.begin(), all.end(), options.algorithm) == all.end()) {
    std::string names = all.empty() ? " auto" : "";
    for (const Algorithm algorithm : all) names += fmt::format(" {}", to_string(algorithm));
    return usage_error(fmt::format("--algorithm {}: {} has only{}", to_string(options.algorithm), name, names));
  }
  const bool compresses = std::any_of(options.compressions.begin(), options.compressions.end(),
                                      [](const Compression& compression) { return !compression.is_none(); });
  if (!compresses || reduces(options)) return std::nullopt;
  if (!moves_compressed(options.collective)) {
    return usage_error(fmt::format(
        "--compression is for all_reduce, reduce_scatter, reduce, all_gather, all_to_all and broadcast, not for {}",
        name));
  }
  if (std::any_of(options.types.begin(), options.types.end(), is_compressible)) return std::nullopt;
  return usage_error(
      fmt::format("--compression is for half, float and bfloat16, not for {}", type_name(options.types[0])));
}

std::optional<int> take_compressions(const Words& words, PerfOptions& options) {
  for (const std::string& list : words.compressions) {
    for (const std::string& spec : split_compressions(list)) {
      try {
        options.compressions.push_back(Compression::parse(spec));
      } catch (const Error& error) {
        return usage_error(fmt::format("--compression: {}", error.what()));
      }
    }
  }
  return std::nullopt;
}

// Sets the values that `word` names; returns an exit code if it names none.
template <class T>
std::optional<int> take_name(const Names<T>& table, const std::string& word, const char* what, const char* all,
                             std::vector<T>& values) {
  values.clear();
  for (const auto& [name, value] : table) {
    if (word == name || (all != nullptr && word == all)) values.push_back(value);
  }
  if (!values.empty()) return std::nullopt;
  return usage_error(fmt::format("there is no {} '{}'; there are: {}", what, word, list_names(table, all)));
}

std::optional<int> take_names(const Words& words, PerfOptions& options) {
  if (auto code = take_name(kTypes, words.type, "data type", "all", options.types)) return code;
  if (auto code = take_name(kOps, words.op, "operation", "all", options.ops)) return code;
  std::vector<Algorithm> algorithms;
  if (auto code = take_name(kAlgorithms, words.algorithm, "algorithm", nullptr, algorithms)) return code;
  options.algorithm = algorithms[0];
  if (reduces(options) && options.types.size() == 1 && options.ops.size() == 1 &&
      !supports(options.types[0], options.ops[0])) {
    const bool is_bitwise = supports(DataType::uint8, options.ops[0]);
    return usage_error(fmt::format("{} is for {}, not for {}", words.op,
                                   is_bitwise ? "integers and bool" : "half, float, double and bfloat16", words.type));
  }
  return std::nullopt;
}

void add_nccl_flags(CLI::App& app, PerfOptions& options, Words& words) {
  app.add_option("-g,--ngpus,--ranks", options.ranks, "Ranks to start on this machine (default 1)")
      ->check(CLI::Range(1, 1024));
  app.add_option("-b,--minbytes", words.min_bytes, "Size to start with (default 32M)");
  app.add_option("-e,--maxbytes", words.max_bytes, "Size to end at (default 32M)");
  app.add_option("-i,--stepbytes", words.step_bytes, "Increment between sizes (default 1M)");
  app.add_option("-f,--stepfactor", options.step_factor, "Factor between sizes, instead of -i (default off)");
  app.add_option("-n,--iters", options.iterations, "Timed iterations (default 20)")->check(CLI::Range(1, 1000000));
  app.add_option("-w,--warmup_iters", options.warmup_iterations, "Untimed iterations before (default 1)")
      ->check(CLI::Range(0, 1000000));
  app.add_option("-N,--run_cycles", options.run_cycles, "How often to run all sizes; 0: for ever (default 1)")
      ->check(CLI::Range(0, 1000000));
  app.add_option("-c,--check", options.check_iterations, "How often to check each result; 0: not (default 1)")
      ->check(CLI::Range(0, 1000000));
  app.add_option("-d,--datatype", words.type, fmt::format("{} (default float)", list_names(kTypes, "all")));
  app.add_option("-o,--op", words.op, fmt::format("{} (default sum)", list_names(kOps, "all")));
  app.add_option("-r,--root", options.root, "Root of a rooted collective; -1: every one in turn (default 0)");
  app.add_option("-z,--blocking", options.blocking, "1 or 3: a barrier, not timed, after each iteration (default 0)")
      ->check(CLI::Range(0, 3));
  app.add_option("-a,--average", options.average, "Time shown: 0 rank 0's, 1 mean, 2 least, 3 largest of all ranks")
      ->check(CLI::Range(0, 3));
  app.add_option("-S,--report_timestamps", words.timestamps, "1: end each row with the time of day")
      ->check(CLI::Range(0, 1));
  app.add_option("-T,--timeout", options.timeout_seconds, "Seconds until an operation fails; 0: the library's default")
      ->check(CLI::NonNegativeNumber)
      ->check(finite_number());
}

void add_own_flags(CLI::App& app, PerfOptions& options, Words& words) {
  app.add_option("--algorithm", words.algorithm, list_names(kAlgorithms) + " (default auto)");
  app.add_option("--compression", words.compressions,
                 "What is sent: none, cast:type=bf16, minmax:bits=4,bucket_size=1024 (default: QCCL_COMPRESSION's). "
                 "A table for each, where given several times or as a list with commas or semicolons")
      ->allow_extra_args(false);
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
    {"-y,--stream_null", 0, "there are no CUDA streams"},
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

bool is_help(const std::string& word) { return word == "-h" || word == "--help"; }

std::optional<int> take_collective(const std::vector<std::string>& arguments, PerfOptions& options) {
  if (arguments.empty()) return usage_error("which collective? There are: " + list_names(kOperations));
  if (is_help(arguments[0])) return std::nullopt;
  std::vector<Operation> found;
  if (auto code = take_name(kOperations, arguments[0], "collective", nullptr, found)) return code;
  options.collective = found[0];
  return std::nullopt;
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
  if (auto code = take_collective(arguments, options)) return code;
  CLI::App app("Times a collective and checks its results, with nccl-tests' flags and columns.", "qccl perf");
  set_usage(app, "qccl perf COLLECTIVE [OPTIONS]");
  app.footer(kFooter);
  Words words;
  add_nccl_flags(app, options, words);
  add_own_flags(app, options, words);
  add_fixed_flags(app);
  const bool has_collective = !is_help(arguments[0]);
  if (auto code = parse(app, {arguments.begin() + (has_collective ? 1 : 0), arguments.end()}, kPerfInvalidUsage)) {
    return code;
  }
  options.timestamps = words.timestamps != 0;
  if (auto code = take_sizes(words, options)) return code;
  if (auto code = take_names(words, options)) return code;
  if (auto code = take_compressions(words, options)) return code;
  return refuse_idle_flags(options);
}

}  // namespace qccl::tools
