// Streams that wait at gates, where a driver may let them wait for ever: one case a process, which `make gpu` gives a
// time limit.
//
//   build/bench/gpu_gates CASE [--streams N] [--json FILE]
//
// Two ranks are threads that share the GPU. Where the library finds that gates don't work, its calls block the host,
// and the case runs with those.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <latch>
#include <map>
#include <thread>

#include "bench/gpu/gpu.h"
#include "device/kernel_images.h"
#include "device/kernels.h"
#include "support/thread_job.h"

namespace qccl::bench::gpu {
namespace {

constexpr int kRanks = 2;
constexpr std::size_t kCount = 1000;
constexpr std::size_t kBytes = kCount * sizeof(float);

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// A stream of the program's with a buffer.
struct Lane {
  explicit Lane(Gpu& gpu)
      : device(gpu.device().index()),
        stream(device::Stream::create(gpu.device()).take_or_throw()),
        event(device::Event::create(gpu.device()).take_or_throw()),
        memory(gpu.memory(kBytes)),
        host(gpu.pinned(kBytes)) {}

  operator DeviceStream() const { return {device, stream->handle()}; }
  void write(float value) const {
    std::fill_n(reinterpret_cast<float*>(host->data()), kCount, value);
    stream->copy_to_device(memory->data(), host->data(), kBytes).take_or_throw();
  }
  // What the buffer has when the stream has come there.
  std::vector<float> read() const {
    stream->copy_to_host(host->data(), memory->data(), kBytes).take_or_throw();
    event->record(stream->handle()).take_or_throw();
    while (!event->has_happened().take_or_throw()) std::this_thread::yield();
    const auto* const values = reinterpret_cast<const float*>(host->data());
    return {values, values + kCount};
  }

  const int device;
  const std::unique_ptr<device::Stream> stream;
  const std::unique_ptr<device::Event> event;
  const std::unique_ptr<device::DeviceMemory> memory;
  const std::unique_ptr<device::PinnedMemory> host;
};

// One case, run by each rank.
class Case {
 public:
  Case(device::Runtime& runtime, std::size_t streams) : runtime_(runtime), streams_(streams) {}

  void run(const std::function<void(Case&, Communicator&, Gpu&)>& body) {
    testing::ThreadJobOptions options;
    options.timeout = Milliseconds(300'000);
    const auto failures = testing::run_threads(kRanks, options, [&](Communicator& comm) {
      Gpu gpu(runtime_);
      if (comm.stream_order(gpu.device().index()) == StreamOrder::host) order_ = StreamOrder::host;
      tried_.arrive_and_wait();
      body(*this, comm, gpu);
    });
    for (const std::string& failure : failures) {
      if (!failure.empty()) fail(failure);
    }
  }

  // Many streams wait at once, and each for several calls. Both ranks' streams share the device's queues: a rank whose
  // streams waited before the other has posted could hold up what they wait for.
  void on_streams(Communicator& comm, Gpu& gpu) {
    constexpr int kRounds = 5;
    std::vector<std::unique_ptr<Lane>> lanes;
    while (lanes.size() < streams_) lanes.push_back(std::make_unique<Lane>(gpu));
    for (const auto& each : lanes) each->write(1);
    float sum = 1;
    for (int round = 0; round < kRounds; ++round, sum *= kRanks) {
      std::vector<Work> works;
      for (const auto& each : lanes) {
        std::byte* const memory = each->memory->data();
        works.push_back(comm.all_reduce_async(memory, memory, kCount, DataType::float32, {.stream = *each}));
      }
      posted_.arrive_and_wait();
      for (std::size_t i = 0; i < lanes.size(); ++i) works[i].block(*lanes[i]);
    }
    for (const auto& each : lanes) {
      if (each->read() != std::vector<float>(kCount, sum)) fail("a stream went on before its calls had ended");
    }
  }

  // The same, while another thread calls what may wait for all streams of the device.
  void beside_freeing(Communicator& comm, Gpu& gpu) {
    const std::jthread freeing([&](const std::stop_token& stop) {
      const device::KernelImages images = device::built_in_kernels();
      while (!stop.stop_requested()) {
        static_cast<void>(gpu.memory(kBytes));
        static_cast<void>(gpu.pinned(kBytes));
        if (!images.empty()) static_cast<void>(device::Kernels::load(gpu.device(), images));
      }
    });
    on_streams(comm, gpu);
  }

  // A call that ends with `kind`, by its deadline or because of what rank 1 does then.
  void failing(Communicator& comm, Gpu& gpu, ErrorKind kind) {
    if (comm.rank() == 1) {
      await_blocks(1);
      if (kind == ErrorKind::aborted) comm.abort("the case");
      return ended_.wait();
    }
    const Lane lane(gpu);
    lane.write(1);
    const Milliseconds timeout(kind == ErrorKind::deadline_exceeded ? 500 : 300'000);
    const Work work = comm.recv_async(lane.memory->data(), kBytes, DataType::uint8, 1,
                                      {.timeout = timeout, .stream = DeviceStream(lane)});
    std::optional<ErrorKind> found;
    try {
      block(work, lane);
      static_cast<void>(lane.read());
      work.wait();
    } catch (const Error& error) {
      found = error.kind();
    }
    ended_.count_down();
    if (found != kind) fail("the call ended otherwise");
  }

  // Calls that never end; the process does.
  void waiting(Communicator& comm, Gpu& gpu) {
    const Lane lane(gpu);
    const Work work =
        comm.recv_async(lane.memory->data(), kBytes, DataType::uint8, 1 - comm.rank(), {.stream = DeviceStream(lane)});
    block(work, lane);
    ended_.wait();
  }
  // Until so many ranks have called block(): their streams wait, or their threads have for a second, because the stream
  // shares a queue with one of the library's.
  void await_blocks(int ranks) const {
    while (calls_ < ranks) std::this_thread::yield();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (returned_ < ranks && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }

  Json document() const { return {{"order", order_ == StreamOrder::gate ? "gate" : "host"}}; }

 private:
  void block(const Work& work, const Lane& lane) {
    ++calls_;
    if (order_ == StreamOrder::gate) work.block(lane);
    ++returned_;
  }

  device::Runtime& runtime_;
  const std::size_t streams_;
  std::latch tried_{kRanks};
  std::barrier<> posted_{kRanks};
  std::latch ended_{1};
  std::atomic<int> calls_{0};  // of block()
  std::atomic<int> returned_{0};
  std::atomic<StreamOrder> order_{StreamOrder::gate};
};

using Body = std::function<void(Case&, Communicator&, Gpu&)>;

const std::map<std::string, Body>& cases() {
  static const auto* const kCases = new std::map<std::string, Body>{
      {"streams", &Case::on_streams},
      {"free", &Case::beside_freeing},
      {"abort", [](Case& own, auto& comm, auto& gpu) { own.failing(comm, gpu, ErrorKind::aborted); }},
      {"deadline", [](Case& own, auto& comm, auto& gpu) { own.failing(comm, gpu, ErrorKind::deadline_exceeded); }},
  };
  return *kCases;
}

const std::map<std::string, void (*)()>& ways_to_leave() {
  static const auto* const kWays = new std::map<std::string, void (*)()>{
      {"exit", [] { std::exit(kEqual); }},
      {"_exit", [] { ::_exit(kEqual); }},
      {"quick_exit", [] { std::quick_exit(kEqual); }},
      {"kill", [] { static_cast<void>(std::raise(SIGKILL)); }},
      {"hang", [] { ::pause(); }},
  };
  return *kWays;
}

struct Settings {
  std::string name;
  std::size_t streams = 64;  // more than a GPU has queues
  std::string json;
};

int run(device::Runtime& runtime, const Settings& settings) {
  const std::string& name = settings.name;
  auto* const own = new Case(runtime, settings.streams);  // its ranks may still run when the process ends
  const auto way = ways_to_leave().find(name);
  if (way != ways_to_leave().end()) {
    std::thread([own] { own->run(&Case::waiting); }).detach();
    own->await_blocks(kRanks);
  } else {
    own->run(cases().at(name));
  }
  write_json(settings.json, own->document());
  if (way != ways_to_leave().end()) way->second();
  return kEqual;
}

int start(int argc, char** argv) {
  std::vector<std::string> names;
  for (const auto& each : cases()) names.push_back(each.first);
  for (const auto& each : ways_to_leave()) names.push_back(each.first);
  Settings settings;
  CLI::App app("Streams that wait at gates: one case, which a driver may let wait for ever.");
  app.add_option("CASE", settings.name, "What happens meanwhile")->required()->check(CLI::IsMember(names));
  app.add_option("--streams", settings.streams, "That wait at once, of each rank, in the cases streams and free")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--json", settings.json, "Write to this file whether streams wait or the host does");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kEqual : kWrongFlags;
  }
  return with_driver("gpu_gates", [&](device::Runtime& runtime) { return run(runtime, settings); });
}

}  // namespace
}  // namespace qccl::bench::gpu

int main(int argc, char** argv) { return qccl::bench::gpu::start(argc, argv); }
