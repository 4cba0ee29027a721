// A GPU's kernels, copies and calls of the driver: bytes against the host's, and their speed.
//
//   build/bench/gpu_kernels [--elements N] [--bytes N] [--samples N] [--json FILE]
//   build/bench/gpu_kernels --case minmax:bits=4 --blocks 16 132     one format; --list prints all cases
//
// `make gpu` runs it (scripts/run_gpu.py); docs/gpu-check.md says what each figure means.
#include <CLI/CLI.hpp>
#include <thread>

#include "bench/gpu/format_run.h"
#include "device/kernel_images.h"
#include "os/memory.h"

namespace qccl::bench::gpu {
namespace {

struct Settings {
  std::size_t elements = 100'000'000;
  std::size_t slice_elements = 128 * 1024;
  std::size_t bytes = std::size_t{256} << 20;
  int samples = 5;
  std::vector<std::string> cases;    // all, if none is named
  std::vector<unsigned> blocks{16};  // leaves the program its multiprocessors
  bool compares_only = false;
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::string plant;
  std::string json;
};

// Cases beside the formats.
constexpr const char kPinned[] = "pinned memory";
constexpr const char kCalls[] = "calls of the driver";
constexpr const char kRegistration[] = "registered shared memory";

// The fake driver (tests/support/fake_cuda) takes any image, and runs the kernels' bodies on the host.
constexpr const char kNoImage[] = "none";
device::KernelImages images_for(const device::Traits& traits) {
  const device::KernelImages built_in = device::built_in_kernels();
  if (!built_in.empty() || !traits.name.starts_with("Fake device")) return built_in;
  return {kNoImage, kNoImage, 0, ""};
}

class Program {
 public:
  Program(device::Runtime& runtime, const Settings& settings)
      : settings_(settings),
        gpu_(runtime),
        kernels_(device::Kernels::load(gpu_.device(), images_for(gpu_.traits())).take_or_throw()) {
    document_["device"] = gpu_.traits().name;
    document_["driver"] = runtime.driver_version();
    document_["compute_capability"] = fmt::format("{}.{}", gpu_.traits().compute_major, gpu_.traits().compute_minor);
    document_["multiprocessors"] = gpu_.traits().multiprocessors;
    document_["elements"] = settings.elements;
  }

  int run() {
    if (!settings_.compares_only) measure_copies();
    if (is_wanted(kPinned)) measure_pinned();
    if (is_wanted(kCalls) && !settings_.compares_only) measure_calls();
    if (is_wanted(kRegistration)) try_registration();
    run_formats();
    document_["equal"] = equal_;
    write_json(settings_.json, document_);
    return equal_ ? kEqual : kDiffers;
  }

 private:
  bool is_wanted(const std::string& name) const {
    const auto& cases = settings_.cases;
    return cases.empty() || std::find(cases.begin(), cases.end(), name) != cases.end();
  }

  unsigned full_grid() const { return 8u * static_cast<unsigned>(gpu_.traits().multiprocessors); }

  void must_be_equal(bool is_equal, const std::string& what) {
    if (is_equal) return;
    equal_ = false;
    say("DIFFERENT BYTES: {}", what);
  }

  double rate(double bytes, double seconds) { return bytes / 1e9 / seconds; }

  // ---- copies

  void measure_copies() {
    const auto source = gpu_.memory(settings_.bytes);
    const auto target = gpu_.memory(settings_.bytes);
    const auto pinned = gpu_.pinned(settings_.bytes);
    device::Stream& stream = gpu_.stream();
    const auto of = [&](double bytes, auto copy) { return rate(bytes, gpu_.seconds(settings_.samples, copy)); };
    const auto bytes = static_cast<double>(settings_.bytes);
    copy_GBps_ =
        of(2 * bytes, [&] { stream.copy_on_device(target->data(), source->data(), settings_.bytes).take_or_throw(); });
    to_device_ =
        of(bytes, [&] { stream.copy_to_device(target->data(), pinned->data(), settings_.bytes).take_or_throw(); });
    to_host_ = of(bytes, [&] { stream.copy_to_host(pinned->data(), source->data(), settings_.bytes).take_or_throw(); });
    document_["copy"] = {{"bytes", settings_.bytes},
                         {"on_device_GBps", rounded(copy_GBps_)},
                         {"to_device_GBps", rounded(to_device_)},
                         {"to_host_GBps", rounded(to_host_)}};
    say("copies: {:.3g} GB/s read and written on the device, {:.3g} GB/s to it, {:.3g} GB/s from it", copy_GBps_,
        to_device_, to_host_);
  }

  // A kernel that copies `settings.bytes` in slices.
  class CopyKernel {
   public:
    CopyKernel(Program& program, const std::byte* source, std::byte* target)
        : program_(program),
          bytes_(program.settings_.bytes),
          slice_bytes_(program.settings_.slice_elements * sizeof(float)),
          count_((bytes_ + slice_bytes_ - 1) / slice_bytes_),
          jobs_(count_) {
      for (std::size_t slice = 0; slice < count_; ++slice) {
        const std::size_t begin = slice * slice_bytes_;
        slices::SliceJob job{.count = static_cast<std::uint32_t>(std::min(slice_bytes_, bytes_ - begin)),
                             .type = DataType::uint8,
                             .source_count = 1};
        job.moves = true;
        job.sources[0].data = source + begin;
        job.output = target + begin;
        jobs_[slice] = job;
      }
    }
    void launch(unsigned blocks) {
      program_.kernels_->launch(program_.gpu_.stream(), slices::Entry::own_type, jobs_, blocks).take_or_throw();
    }

   private:
    Program& program_;
    const std::size_t bytes_, slice_bytes_, count_;
    std::vector<slices::SliceJob> jobs_;
  };

  // Whether a kernel that writes what it reads in one of the two memories leaves the host's bytes there, and how fast
  // it is in each direction beside the copy engine. `reached`: where the device has the host's memory.
  Json through_kernel(std::byte* host_memory, std::byte* reached, const std::string& what) {
    const std::size_t bytes = settings_.bytes;
    const auto there = gpu_.memory(bytes);
    const std::vector<std::byte> pattern = pattern_of(bytes);
    std::memcpy(host_memory, pattern.data(), bytes);
    CopyKernel reads(*this, reached, there->data());
    CopyKernel writes(*this, there->data(), reached);
    reads.launch(full_grid());
    gpu_.wait();
    std::memset(host_memory, 0, bytes);
    writes.launch(full_grid());
    gpu_.wait();
    must_be_equal(std::memcmp(host_memory, pattern.data(), bytes) == 0, what);
    Json row;
    if (settings_.compares_only) return row;
    for (const auto& [name, kernel, engine] :
         {std::tuple{"read", &reads, to_device_}, std::tuple{"write", &writes, to_host_}}) {
      const auto of = [&](unsigned blocks) {
        return rate(static_cast<double>(bytes), gpu_.seconds(settings_.samples, [&] { kernel->launch(blocks); }));
      };
      const double full = of(full_grid());
      row[name] = {{"GBps", rounded(full)}, {"share_of_copy_engine", rounded(full / engine)}};
      for (const unsigned blocks : settings_.blocks) row[name][rate_with(blocks)] = rounded(of(blocks));
      say("{}: kernels {} {:.3g} GB/s, {:.0f} % of the copy engine{}", what, name, full, 100 * full / engine,
          rates_text(row[name]));
    }
    return row;
  }

  std::string rates_text(const Json& row) const {
    std::string text;
    for (const unsigned blocks : settings_.blocks) {
      text += fmt::format(", {} with {} blocks", row[rate_with(blocks)].dump(), blocks);
    }
    return text;
  }

  static std::vector<std::byte> pattern_of(std::size_t bytes) {
    std::vector<std::byte> pattern(bytes);
    for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<std::byte>(i * 2654435761u >> 13);
    return pattern;
  }

  void measure_pinned() {
    const auto pinned = gpu_.pinned(settings_.bytes);
    document_["pinned"] = through_kernel(pinned->data(), pinned->data(), "pinned memory");
  }

  // ---- shared memory

  void try_registration() {
    auto shared = os::create_shared_memory("qccl-gpu", settings_.bytes).take_or_throw();
    const auto registration = device::Registration::make(gpu_.device(), shared.mapping.data(), settings_.bytes);
    Json& row = document_["registration"];
    row["works"] = registration.ok();
    if (!registration.ok()) {
      row["why"] = registration.error().message;
      say("shared memory: can't be registered: {}", registration.error().message);
      return;
    }
    std::byte* const reached = registration.value()->address_on(gpu_.device()).take_or_throw();
    row.update(through_kernel(shared.mapping.data(), reached, "registered shared memory"));
  }

  // ---- the driver's calls

  void measure_calls() {
    const auto device_memory = gpu_.memory(sizeof(float));
    const float zero = 0;
    gpu_.upload(device_memory->data(), reinterpret_cast<const std::byte*>(&zero), sizeof zero);
    slices::SliceJob job{.count = 1, .source_count = 1};
    job.sources[0].data = device_memory->data();
    job.output = device_memory->data();
    const auto launch = [&] { kernels_->launch(gpu_.stream(), slices::Entry::own_type, {&job, 1}, 1).take_or_throw(); };
    const auto record = [&] { gpu_.event().record(gpu_.stream().handle()).take_or_throw(); };
    const auto query = [&] { static_cast<void>(gpu_.event().has_happened().take_or_throw()); };
    Json& row = document_["calls_us"];
    row["launch"] = rounded(microseconds(launch));
    row["record"] = rounded(microseconds(record));
    row["query"] = rounded(microseconds(query));
    row["launch_to_seen"] = rounded(microseconds([&] {
      launch();
      gpu_.wait();
    }));
    say("calls: launch {} us, record {} us, query {} us; launched until seen {} us", row["launch"].dump(),
        row["record"].dump(), row["query"].dump(), row["launch_to_seen"].dump());
  }

  // Of the calling thread, in batches that the driver takes without waiting.
  template <class Call>
  double microseconds(Call call) {
    constexpr int kBatch = 50;
    std::vector<double> taken;
    for (int i = 0; i < std::max(1, 10 * settings_.samples); ++i) {
      const double start = seconds_now();
      for (int each = 0; each < kBatch; ++each) call();
      taken.push_back((seconds_now() - start) / kBatch * 1e6);
      gpu_.wait();
    }
    return median(taken);
  }

  // ---- formats

  void run_formats() {
    const RunSettings run{.elements = settings_.elements,
                          .slice_elements = settings_.slice_elements,
                          .threads = settings_.threads,
                          .samples = settings_.samples,
                          .copy_GBps = copy_GBps_,
                          .full_grid = full_grid(),
                          .blocks = settings_.compares_only ? std::vector<unsigned>{} : settings_.blocks};
    document_["kernels"] = Json::array();
    for (const Format& format : formats()) {
      if (!is_wanted(format.name)) continue;
      const Json rows = FormatRun(gpu_, *kernels_, format, run).run(format.name == settings_.plant);
      std::string text;
      for (const Json& row : rows) {
        document_["kernels"].push_back(row);
        must_be_equal(row["equal"], fmt::format("{}, {}: {}", format.name, row["pass"].dump(),
                                                row.value("difference", std::string())));
        text += fmt::format("  {}", row["pass"].get<std::string>());
        if (!row.contains("GBps")) continue;
        text += fmt::format(" {} GB/s ({:.0f} %){}", row["GBps"].dump(), 100 * row["share_of_copy"].get<double>(),
                            rates_text(row));
      }
      say("{:<30}{}", format.name, text);
    }
  }

  const Settings& settings_;
  Gpu gpu_;
  const std::unique_ptr<device::Kernels> kernels_;
  Json document_;
  bool equal_ = true;
  double copy_GBps_ = 0, to_device_ = 0, to_host_ = 0;
};

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const Format& format : formats()) names.push_back(format.name);
  return names;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names{kPinned, kCalls, kRegistration};
  for (std::string& name : format_names()) names.push_back(std::move(name));
  return names;
}

CLI::Validator one_of(const std::vector<std::string>& names) {
  return CLI::IsMember(names).description("");  // --list prints them
}

void list_cases() {
  for (const char* const each : {kPinned, kCalls, kRegistration}) say("{}", each);
  for (const Format& format : formats()) {
    say("{}\t{}", format.name, fmt::join(FormatRun::kernels_of(format), " "));
  }
  throw CLI::Success();
}

int run(int argc, char** argv) {
  Settings settings;
  CLI::App app("The kernels of a GPU against the host's, byte by byte, and the speed of kernels, copies and calls.");
  app.add_option("--elements", settings.elements, "Of each format")->capture_default_str();
  app.add_option("--slice", settings.slice_elements, "Elements of a slice")->capture_default_str();
  app.add_option("--bytes", settings.bytes, "Of each copy")->capture_default_str();
  app.add_option("--samples", settings.samples, "Of each time; a sample is 10 ms long. 0: one run")
      ->capture_default_str();
  app.add_option("--threads", settings.threads, "That compute what is expected");
  app.add_option("--case", settings.cases, "Only these: formats and others")->check(one_of(case_names()));
  app.add_option("--blocks", settings.blocks, "Time kernels with each of these numbers of blocks as well")
      ->capture_default_str();
  app.add_flag("--compare-only", settings.compares_only, "Compare bytes, and time nothing");
  app.add_option("--plant", settings.plant, "Change a byte of this format's payload, to see it found")
      ->check(one_of(format_names()));
  app.add_flag_callback("--list", list_cases,
                        "Print the cases, formats with the kernels that encode, reduce and decode them");
  app.add_option("--json", settings.json, "Write the figures to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kEqual : kWrongFlags;
  }
  return with_driver("gpu_kernels", [&](device::Runtime& runtime) { return Program(runtime, settings).run(); });
}

}  // namespace
}  // namespace qccl::bench::gpu

int main(int argc, char** argv) { return qccl::bench::gpu::run(argc, argv); }
