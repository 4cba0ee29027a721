// Ranks as threads that share one GPU: calls on its memory give the bits of calls on the host's, and their speed.
//
//   build/bench/gpu_ranks [--worlds 2 4 8] [--least N] [--largest N] [--seconds S] [--json FILE]
//
// `make gpu` runs it (scripts/run_gpu.py). All bytes of all ranks pass the one PCIe link, each once in each direction:
// for an all_reduce of S bytes by N ranks 2 (N - 1) S of them, times the codec's share. The row's `share_of_bound` is
// how near a call comes to the time of that.
#include <CLI/CLI.hpp>
#include <thread>

#include "bench/gpu/gpu.h"
#include "kernels/lanes/random.h"
#include "kernels/minmax/minmax.h"
#include "support/thread_job.h"

namespace qccl::bench::gpu {
namespace {

std::size_t host_bytes_available() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  }
  return 0;
}

struct Settings {
  std::vector<int> worlds{2, 4, 8};
  std::size_t least = std::size_t{64} << 10;
  std::size_t largest = std::size_t{1} << 30;
  double seconds = 240;
  int iterations = 20;
  std::size_t host_memory = host_bytes_available() / 10 * 8;
  std::string transport = "auto";
  bool plants = false;
  std::string json;
};

constexpr Collective kCollectives[] = {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter};

struct Case {
  Collective collective;
  int bits;  // of minmax; 0: uncompressed
  std::size_t bytes;

  Compression compression() const { return bits == 0 ? none() : minmax({.bits = bits}); }
  std::string name() const {
    return fmt::format("{} of {} KiB, {}", to_string(collective), bytes >> 10, compression().to_string());
  }
  // Of the bytes of uncompressed elements.
  double share_sent() const {
    constexpr std::size_t kBucket = 1024;
    return bits == 0
               ? 1
               : static_cast<double>(kernels::minmax_encoded_bytes({.bits = bits, .bucket_size = kBucket}, kBucket)) /
                     (kBucket * sizeof(float));
  }
  double phases() const { return collective == Collective::all_reduce ? 2 : 1; }
};

std::vector<Case> cases_of(std::size_t bytes) {
  std::vector<Case> cases;
  for (const Collective collective : kCollectives) {
    for (const int bits : {0, 8, 4}) cases.push_back({collective, bits, bytes});
  }
  return cases;
}

// What the ranks of one world have in common.
struct World {
  int size;
  double deadline;
  double link_GBps;  // of the slower direction
  const Settings& settings;
  Json rows = Json::array();
  Json left_out = Json::array();
  bool equal = true;
};

// One rank. Buffers of the largest size lie on both sides; every call is in place.
class Rank {
 public:
  Rank(Communicator& comm, device::Runtime& runtime, World& world, std::size_t largest)
      : comm_(comm), world_(world), gpu_(runtime), host_(largest), memory_(gpu_.memory(largest)) {}

  void run(const Case& each) {
    const bool is_equal = agrees([&] { return equals_hosts(each); });
    const double seconds = time(each);
    if (comm_.rank() != 0) return;
    const double total = each.phases() * (world_.size - 1) * static_cast<double>(each.bytes) * each.share_sent();
    const double bound = total / 1e9 / world_.link_GBps;
    const double algbw = static_cast<double>(each.bytes) / 1e9 / seconds;
    Json row = {{"ranks", world_.size},
                {"collective", to_string(each.collective)},
                {"compression", each.compression().to_string()},
                {"bytes", each.bytes},
                {"equal", is_equal},
                {"us", rounded(seconds * 1e6)},
                {"algbw_GBps", rounded(algbw)},
                {"busbw_GBps", rounded(algbw * each.phases() * (world_.size - 1) / world_.size)},
                {"share_of_bound", rounded(bound / seconds)}};
    if (!is_equal) say("DIFFERENT BYTES: {} ranks, {}", world_.size, each.name());
    say("{} ranks, {:<60} {:>9.1f} us, {:>7.3g} GB/s, {:.0f} % of the bound of the link", world_.size, each.name(),
        seconds * 1e6, algbw, 100 * bound / seconds);
    world_.equal = world_.equal && is_equal;
    world_.rows.push_back(std::move(row));
  }

  // Rank 0's answer, on all ranks.
  bool is_late() {
    std::int32_t late = comm_.rank() == 0 && seconds_now() > world_.deadline ? 1 : 0;
    comm_.all_reduce(std::span<std::int32_t>(&late, 1));
    return late != 0;
  }

 private:
  std::size_t part(const Case& each) const { return each.bytes / sizeof(float) / world_.size; }

  std::size_t count(const Case& each) const {
    return each.collective == Collective::all_reduce ? each.bytes / sizeof(float) : part(each);
  }

  CallOptions options_of(const Case& each) const {
    CallOptions options{.compression = each.compression()};
    // An average stays in range, however often its result is its input.
    if (each.collective != Collective::all_gather) options.op = ReduceOp::avg;
    return options;
  }

  void call(const Case& each, std::byte* memory, const CallOptions& options) {
    std::byte* const own = memory + comm_.rank() * part(each) * sizeof(float);
    std::byte* const input = each.collective == Collective::all_gather ? own : memory;
    std::byte* const output = each.collective == Collective::reduce_scatter ? own : memory;
    comm_.run({each.collective, input, output, count(each), DataType::float32, options});
  }

  CallOptions on_device(const Case& each) {
    CallOptions options = options_of(each);
    options.stream = DeviceStream{gpu_.device().index(), gpu_.stream().handle()};
    return options;
  }

  void make_input(const Case& each) {
    auto* const values = reinterpret_cast<float*>(host_.data());
    const auto seed = static_cast<std::uint64_t>(comm_.rank() + 1) << 40;
    for (std::size_t i = 0; i < each.bytes / sizeof(float); ++i) {
      values[i] = static_cast<float>(static_cast<std::int64_t>(kernels::mix64(seed + i)) >> 32) * 0x1p-31f;
    }
    gpu_.upload(memory_->data(), host_.data(), each.bytes);
  }

  bool equals_hosts(const Case& each) {
    make_input(each);
    CallOptions options = options_of(each);
    options.algorithm = comm_.effective_algorithm(each.collective, count(each), DataType::float32, on_device(each));
    call(each, host_.data(), options);
    call(each, memory_->data(), on_device(each));
    const bool scatters = each.collective == Collective::reduce_scatter;
    const std::size_t begin = scatters ? comm_.rank() * part(each) * sizeof(float) : 0;
    const std::size_t end = scatters ? begin + part(each) * sizeof(float) : each.bytes;
    return is_on_device(begin, end);
  }

  // Whether the device has the host's bytes in this range.
  bool is_on_device(std::size_t begin, std::size_t end) {
    constexpr std::size_t kPiece = std::size_t{16} << 20;
    std::vector<std::byte> found(std::min(kPiece, end - begin));
    bool equal = true;
    for (; begin < end; begin += kPiece) {
      const std::size_t bytes = std::min(kPiece, end - begin);
      gpu_.download(found.data(), memory_->data() + begin, bytes);
      if (world_.settings.plants && comm_.rank() == 1) found[bytes / 2] ^= std::byte{1};
      equal = equal && std::memcmp(found.data(), host_.data() + begin, bytes) == 0;
    }
    return equal;
  }

  template <class Check>
  bool agrees(Check check) {
    std::int32_t wrong = check() ? 0 : 1;
    comm_.all_reduce(std::span<std::int32_t>(&wrong, 1));
    return wrong == 0;
  }

  // Seconds of a call, the mean of as many as fill a fifth of a second.
  double time(const Case& each) {
    const CallOptions options = on_device(each);
    const auto run = [&](int calls) {
      comm_.barrier();
      const double start = seconds_now();
      for (int i = 0; i < calls; ++i) call(each, memory_->data(), options);
      double seconds = (seconds_now() - start) / calls;
      comm_.all_reduce(std::span<double>(&seconds, 1), {.op = ReduceOp::max});
      return seconds;
    };
    const double first = run(1);
    return run(std::clamp(static_cast<int>(0.2 / first), 1, world_.settings.iterations));
  }

  Communicator& comm_;
  World& world_;
  Gpu gpu_;
  std::vector<std::byte> host_;
  const std::unique_ptr<device::DeviceMemory> memory_;
};

class Program {
 public:
  Program(device::Runtime& runtime, const Settings& settings) : runtime_(runtime), settings_(settings) {}

  int run() {
    measure_link();
    for (std::size_t i = 0; i < settings_.worlds.size(); ++i) {
      const auto left = static_cast<double>(settings_.worlds.size() - i);
      const double now = seconds_now();
      run_world({.size = settings_.worlds[i],
                 .deadline = now + std::max(0.0, end_ - now) / left,
                 .link_GBps = link_GBps_,
                 .settings = settings_});
    }
    document_["equal"] = equal_;
    write_json(settings_.json, document_);
    return equal_ ? kEqual : kDiffers;
  }

 private:
  void measure_link() {
    const std::size_t bytes = std::min<std::size_t>(settings_.largest, std::size_t{256} << 20);
    Gpu gpu(runtime_);
    const auto pinned = gpu.pinned(bytes);
    const auto memory = gpu.memory(bytes);
    const auto rate = [&](auto copy) { return static_cast<double>(bytes) / 1e9 / gpu.seconds(3, copy); };
    const double to = rate([&] { gpu.stream().copy_to_device(memory->data(), pinned->data(), bytes).take_or_throw(); });
    const double from = rate([&] { gpu.stream().copy_to_host(pinned->data(), memory->data(), bytes).take_or_throw(); });
    link_GBps_ = std::min(to, from);
    document_["device"] = gpu.traits().name;
    document_["link_GBps"] = rounded(link_GBps_);
    say("the link to the GPU carries {:.3g} GB/s", link_GBps_);
    end_ = seconds_now() + settings_.seconds;
  }

  // The largest size for which host and GPU have memory.
  std::size_t largest_for(int world) {
    const std::size_t device_room = Gpu(runtime_).device().free_bytes().take_or_throw() / 10 * 9;
    std::size_t bytes = settings_.largest;
    // The buffer, and what the library pins for input and output.
    while (bytes > settings_.least && (world * bytes > device_room || 4 * world * bytes > settings_.host_memory))
      bytes /= 4;
    return bytes;
  }

  void run_world(World world) {
    const std::size_t largest = largest_for(world.size);
    testing::ThreadJobOptions options;
    options.timeout = Milliseconds(300'000);
    if (settings_.transport == "tcp") options.transport = TransportChoice::tcp;
    if (settings_.transport == "shm") options.transport = TransportChoice::shm;
    const auto failures = testing::run_threads(world.size, options, [&](Communicator& comm) {
      Rank rank(comm, runtime_, world, largest);
      std::size_t bytes = settings_.least;
      for (; bytes <= largest && !rank.is_late(); bytes *= 4) {
        for (const Case& each : cases_of(bytes)) rank.run(each);
      }
      if (comm.rank() == 0) leave_out(world, bytes, largest);
    });
    for (const std::string& failure : failures) {
      if (!failure.empty()) throw std::runtime_error(fmt::format("{} ranks: {}", world.size, failure));
    }
    equal_ = equal_ && world.equal;
    for (const char* list : {"rows", "left_out"}) {
      for (const Json& each : list == std::string("rows") ? world.rows : world.left_out)
        document_[list].push_back(each);
    }
  }

  void leave_out(World& world, std::size_t bytes, std::size_t largest) const {
    for (; bytes <= settings_.largest; bytes *= 4) {
      const char* const why = bytes > largest ? "memory" : "time";
      world.left_out.push_back({{"ranks", world.size}, {"bytes", bytes}, {"for_lack_of", why}});
      say("{} ranks, {} KiB: left out for lack of {}", world.size, bytes >> 10, why);
    }
  }

  device::Runtime& runtime_;
  const Settings& settings_;
  Json document_;
  bool equal_ = true;
  double link_GBps_ = 0;
  double end_ = 0;
};

int run(int argc, char** argv) {
  Settings settings;
  CLI::App app("Ranks as threads on one GPU: bits against the host's, and speed against the bound of the link.");
  app.add_option("--worlds", settings.worlds, "Numbers of ranks")->check(CLI::Range(2, 64))->capture_default_str();
  app.add_option("--least", settings.least, "Bytes of the smallest call")->check(CLI::PositiveNumber);
  app.add_option("--largest", settings.largest, "Bytes of the largest call")->check(CLI::PositiveNumber);
  app.add_option("--seconds", settings.seconds, "Larger sizes are left out after so long")->capture_default_str();
  app.add_option("--iterations", settings.iterations, "At most, of each time")->check(CLI::PositiveNumber);
  app.add_option("--host-memory", settings.host_memory,
                 "Bytes that calls may take of it; default: most of what is free");
  app.add_option("--transport", settings.transport)->check(CLI::IsMember({"auto", "shm", "tcp"}));
  app.add_flag("--plant", settings.plants, "Change a byte of rank 1's results, to see it found");
  app.add_option("--json", settings.json, "Write the figures to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kEqual : kWrongFlags;
  }
  return with_driver("gpu_ranks", [&](device::Runtime& runtime) { return Program(runtime, settings).run(); });
}

}  // namespace
}  // namespace qccl::bench::gpu

int main(int argc, char** argv) { return qccl::bench::gpu::run(argc, argv); }
