// `qccl codec bench`: error, size and speed of codecs.
#include <fmt/format.h>
#include <qccl/qccl.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "codec/registry.h"
#include "kernels/simd.h"
#include "tools/codec/codec_measure.h"
#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr const char* kBenchFooter =
    R"(Errors are those of one encoding, in slices as in a collective. NMSE is the sum of squared errors over the sum
of squares; max/rms is the largest error over the root mean square of the values; bits are those of an element with all
headers. '!' marks an error beyond the codec's stated bound.

With --hops N they are those of a sum over N + 1 ranks whose partial sums are encoded at each hop, as a ring does. Each
rank has the data with random signs of its own. Bits are those of a hop in the mean; bounds are not checked.

Speeds are those of one thread on the beginning of the first data set, in GB/s of float32 and as a multiple of memcpy of
the same data, measured in turns. The default 65536 floats, 256 KiB, stay in the core's cache; with --speed-elements of
several million they come from memory.

Data: gauss, laplace, t3 (Student's t, 3 degrees of freedom) and outliers (Gauss, 1 % of the elements 30 times
as large); or files of raw little-endian float32 (demo/dump_gradients.py writes one).

Exit code: 0; 1 if a bound is exceeded or a file can't be written or drawn; 2 for wrong flags.

Examples:
  qccl codec bench
  qccl codec bench --codecs minmax:bits=4 minmax:bits=4,bucket_size=64 --data gradients.f32
  qccl codec bench --hops 16 --codecs int:bits=4 h4:bits=4 grid --speed-seconds 0
  qccl codec bench --speed-seconds 0 --plot rate_distortion.png
)";

struct BenchOptions {
  std::vector<std::string> specs;
  std::vector<std::string> files;
  std::vector<std::string> names;
  std::size_t elements = 1 << 20;
  std::uint64_t seed = 1;
  int hops = 0;
  double speed_seconds = 0.1;
  std::size_t speed_elements = kElementsInCache;
  std::string json;
  std::string plot;
};

std::optional<int> parse_options(const std::vector<std::string>& arguments, BenchOptions& options) {
  CommandLine app("Measures codecs.", "qccl codec bench", "[OPTIONS]", kBenchFooter);
  app.add_option("--codecs", options.specs,
                 "Which, as specifications; a name alone stands for its examples (default: those of all)");
  app.add_option("--data", options.files, "Files of floats, beside the synthetic data or with --synthetic none");
  app.add_option("--synthetic", options.names, "Which distributions (default: all), or none");
  app.add_option("--elements", options.elements, "Of each distribution (default 1048576)")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 28));
  app.add_option("--seed", options.seed, "Of the distributions (default 1)")->check(without_sign());
  app.add_option("--hops", options.hops, "Measure a sum over this many ranks and one, not one encoding (default 0)")
      ->check(CLI::Range(0, 4096));
  add_seconds(app, "--speed-seconds", options.speed_seconds, CLI::Range(0.0, 60.0),
              "For each of encode, decode, decode-add; 0: no speeds");
  app.add_option("--speed-elements", options.speed_elements,
                 "At most how many floats of the data speeds are measured on, in whole slices (default 65536)")
      ->check(CLI::Range(1, 1 << 28));
  app.add_option("--json", options.json, "Also write all numbers to this file");
  app.add_option("--plot", options.plot,
                 fmt::format("Also draw error against bits, to this file: {} (needs a Python with matplotlib)",
                             kPictureEndings))
      ->check(picture_value());
  return app.read(arguments);
}

[[noreturn]] void refuse_options(const std::string& text) {
  throw Error({.kind = ErrorKind::invalid_argument, .message = text});
}

[[noreturn]] void refuse_automatic(const std::string& spec, const Compression& compression) {
  std::vector<std::string> names;
  for (const Compression& each : candidates_of(compression)) names.push_back(each.to_string());
  refuse_options(fmt::format("{} has no format of its own: give one of {}", spec, fmt::join(names, ", ")));
}

std::vector<Compression> chosen_codecs(const BenchOptions& options) {
  std::vector<Compression> chosen;
  const auto add_examples = [&](const CodecEntry& entry) {
    for (const Compression& example : examples_of(entry)) chosen.push_back(example);
  };
  for (const std::string& spec : options.specs) {
    const Compression compression = parse_compression(spec).take_or_throw();
    if (is_automatic(compression)) refuse_automatic(spec, compression);
    const bool has_settings = spec.find(':') != std::string::npos;
    has_settings ? chosen.push_back(compression) : add_examples(*entry_of(compression));
  }
  if (!chosen.empty()) return chosen;
  for (const CodecEntry* entry : codec_list()) {
    if (entry->candidates == nullptr) add_examples(*entry);
  }
  return chosen;
}

std::vector<DataSet> chosen_data(const BenchOptions& options) {
  std::vector<DataSet> chosen;
  for (const std::string& path : options.files) chosen.push_back(read_data(path).take_or_throw());
  std::vector<std::string> names = options.names;
  const auto& known = synthetic_names();
  if (names.empty()) names.assign(known.begin(), known.end());
  for (const std::string& name : names) {
    if (name == "none") continue;
    if (std::ranges::find(known, name) == known.end()) {
      refuse_options(fmt::format("there is no distribution '{}'; there are {} and none", name, fmt::join(known, ", ")));
    }
    chosen.push_back(synthetic_data(name, options.elements, options.seed));
  }
  if (chosen.empty()) refuse_options("no data: name a distribution or a file");
  return chosen;
}

// ---- the report

struct CodecReport {
  struct Row {
    Compression compression;
    std::vector<Distortion> distortions{};  // by data set
    std::optional<Speed> speed{};
  };
  std::string simd{};
  std::vector<DataSet> data{};
  std::vector<Row> rows{};
};

using Json = nlohmann::ordered_json;

constexpr int kNameWidth = 38;

Json as_json(const Speed& speed) {
  const auto pair = [](const Rate& rate) { return Json{{"GBps", rate.gigabytes}, {"of_memcpy", rate.of_copy}}; };
  return {{"encode", pair(speed.encode)}, {"decode", pair(speed.decode)}, {"decode_add", pair(speed.decode_add)}};
}

std::string rate_text(const Rate& rate) { return fmt::format("{:>7.1f} ({:.2f})", rate.gigabytes, rate.of_copy); }

void print_heading(const DataSet& data) {
  fmt::print("# {}: {} floats\n# {:<{}} {:>8} {:>7} {:>10} {:>9}\n", data.name, data.values.size(), "codec",
             kNameWidth - 2, "bits", "ratio", "NMSE", "max/rms");
}

void print_row(const Compression& compression, const Distortion& d) {
  fmt::print("{:<{}} {:>8.3f} {:>7.2f} {:>10.3g} {:>9.3g}{}\n", compression.to_string(), kNameWidth, d.bits,
             32 / d.bits, d.nmse, d.max_error, d.within_bound ? "" : " !");
}

void print_speed_heading(const std::string& simd) {
  fmt::print("# GB/s of float32 (times memcpy), kernels: {}\n# {:<{}} {:>14} {:>14} {:>14}\n", simd, "codec",
             kNameWidth - 2, "encode", "decode", "decode-add");
}

void print_row(const Compression& compression, const Speed& speed) {
  fmt::print("{:<{}} {} {} {}\n", compression.to_string(), kNameWidth, rate_text(speed.encode), rate_text(speed.decode),
             rate_text(speed.decode_add));
}

// For --json and the picture.
std::string json_text(const CodecReport& report) {
  Json object{{"simd", report.simd}, {"codecs", Json::array()}};
  for (const CodecReport::Row& row : report.rows) {
    Json entry{{"name", row.compression.name()}, {"compression", row.compression.to_string()}};
    for (std::size_t i = 0; i < report.data.size(); ++i) {
      const Distortion& distortion = row.distortions[i];
      entry["data"].push_back({{"name", report.data[i].name},
                               {"elements", report.data[i].values.size()},
                               {"bits", distortion.bits},
                               {"nmse", distortion.nmse},
                               {"max_error", distortion.max_error},
                               {"within_bound", distortion.within_bound}});
    }
    entry["speed"] = row.speed ? as_json(*row.speed) : Json(nullptr);
    object["codecs"].push_back(std::move(entry));
  }
  return object.dump(2);
}

// ---- measuring

// False if a codec exceeds its bound.
bool measure_errors(CodecReport& report, int hops) {
  bool within_bounds = true;
  for (const DataSet& set : report.data) {
    print_heading(set);
    for (CodecReport::Row& row : report.rows) {
      const auto codec = make_codec(row.compression).take_or_throw();
      row.distortions.push_back(hops == 0 ? measure_distortion(codec.get(), set.values)
                                          : measure_sum_distortion(codec.get(), set.values, hops));
      within_bounds &= row.distortions.back().within_bound;
      print_row(row.compression, row.distortions.back());
    }
    fmt::print("\n");
  }
  return within_bounds;
}

void measure_speeds(const BenchOptions& options, CodecReport& report) {
  print_speed_heading(report.simd);
  for (CodecReport::Row& row : report.rows) {
    const auto codec = make_codec(row.compression).take_or_throw();
    if (codec == nullptr) continue;
    row.speed = measure_speed(*codec, report.data.front().values, options.speed_seconds, options.speed_elements);
    print_row(row.compression, *row.speed);
    std::fflush(stdout);
  }
}

int bench(const BenchOptions& options, CodecReport report) {
  if (const auto problem = options.plot.empty() ? std::nullopt : plot_problem()) {
    fmt::print(stderr, "qccl codec bench: --plot: {}\n", *problem);
    return kExitFailed;
  }
  const bool within_bounds = measure_errors(report, options.hops);
  if (options.speed_seconds > 0) measure_speeds(options, report);
  std::optional<std::string> problem;
  if (!options.json.empty()) problem = write_text(options.json, json_text(report) + "\n");
  if (!options.plot.empty() && !problem) problem = draw_plot("codec", json_text(report), options.plot);
  if (problem) fmt::print(stderr, "qccl codec bench: {}\n", *problem);
  return problem || !within_bounds ? kExitFailed : 0;
}

}  // namespace

int codec_bench_main(const std::vector<std::string>& arguments) {
  BenchOptions options;
  if (auto code = parse_options(arguments, options)) return *code;
  CodecReport report{.simd = kernels::simd_target()};
  try {
    for (const Compression& compression : chosen_codecs(options)) report.rows.push_back({.compression = compression});
    report.data = chosen_data(options);
  } catch (const Error& error) {
    fmt::print(stderr, "qccl codec bench: {}\n", error.what());
    return kExitUsage;
  }
  return bench(options, std::move(report));
}

}  // namespace qccl::tools
