// Shared memory between two ranks that spin, each a thread with its own mappings: latency of
// small frames and of a board operation, bandwidth of large frames next to memcpy in the same
// run, and the cost of one poll of a spinning rank.
//
//   build/bench/shm_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
//
// Needs two free cores; compare medians.
#include <benchmark/benchmark.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "os/net/socket.h"
#include "transport/shm/shm_endpoint.h"

namespace qccl {
namespace {

// The ranks of a host, connected like processes.
class Host {
 public:
  explicit Host(int world) : pollers_(static_cast<std::size_t>(world)), endpoints_(pollers_.size()) {
    std::vector<std::vector<os::Fd>> sockets(pollers_.size());  // [rank], by ascending peer
    for (auto& each : sockets) each.resize(pollers_.size());
    for (std::size_t low = 0; low < pollers_.size(); ++low) {
      for (std::size_t high = low + 1; high < pollers_.size(); ++high) {
        auto both = os::socket_pair().take_or_throw();
        sockets[low][high] = std::move(both.first);
        sockets[high][low] = std::move(both.second);
      }
    }
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] { join(rank, world, sockets[static_cast<std::size_t>(rank)]); });
    }
    for (auto& thread : threads) thread.join();
  }
  Endpoint& operator[](int rank) { return *endpoints_[static_cast<std::size_t>(rank)]; }

 private:
  void join(int rank, int world, std::vector<os::Fd>& sockets) {
    const SteadyClock clock;
    ShmExports exports = create_shm_exports(rank, world);
    std::vector<ShmLink> links;
    for (int peer = 0; peer < world; ++peer) {
      if (peer == rank) continue;
      auto link = make_shm_link(std::move(sockets[static_cast<std::size_t>(peer)]), exports, peer,
                                clock.now() + std::chrono::seconds(10), clock);
      links.push_back(link.take_or_throw());
    }
    auto& poller = pollers_[static_cast<std::size_t>(rank)];
    poller = std::make_unique<os::Poller>(os::Poller::create().take_or_throw());
    endpoints_[static_cast<std::size_t>(rank)] =
        make_shm_endpoint(*poller, {.world = world}, std::move(exports), std::move(links)).take_or_throw();
  }

  std::vector<std::unique_ptr<os::Poller>> pollers_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

// Runs rank 1 until the benchmark's loop has ended.
class OtherRank {
 public:
  template <class Step>
  OtherRank(Endpoint& endpoint, Step step)
      : endpoint_(endpoint), thread_([this, step = std::move(step)]() mutable {
          while (!stop_.load(std::memory_order_relaxed)) step(endpoint_);
        }) {}
  ~OtherRank() {
    stop_ = true;
    endpoint_.wake();
    thread_.join();
  }

 private:
  Endpoint& endpoint_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

void send(Endpoint& endpoint, int peer, const std::byte* source, std::size_t bytes) {
  Reservation room;
  while (!(room = endpoint.reserve(WorldRank(peer), bytes, TrafficClass::data))) endpoint.progress();
  std::memcpy(room.bytes().data(), source, bytes);
  endpoint.commit(std::move(room), bytes, {});
}

ReceivedFrame await_spinning(Endpoint& endpoint) {
  while (true) {
    if (const auto frame = endpoint.receive()) return *frame;
    endpoint.progress();
  }
}

void copy_out(Endpoint& endpoint, const ReceivedFrame& frame, std::byte* target) {
  std::memcpy(target, frame.bytes.data(), frame.bytes.size());
  endpoint.release(frame);
}

std::vector<std::byte> buffer() { return std::vector<std::byte>(kMaxFrameBytes, std::byte{1}); }

// A round trip: both ranks spin, and each copies the frame in and out. Half the time is the one-way
// latency.
void round_trip(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Host host(2);
  auto own = buffer();
  OtherRank echo(host[1], [echoed = buffer()](Endpoint& endpoint) mutable {
    const auto frame = endpoint.receive();
    if (!frame) return static_cast<void>(endpoint.progress());
    const std::size_t size = frame->bytes.size();
    copy_out(endpoint, *frame, echoed.data());
    send(endpoint, 0, echoed.data(), size);
  });
  for (auto _ : state) {
    send(host[0], 1, own.data(), bytes);
    copy_out(host[0], await_spinning(host[0]), own.data());
  }
}
BENCHMARK(round_trip)->Arg(64)->Arg(128)->Arg(1024)->Arg(4096)->UseRealTime();

// The same with ranks that sleep whenever nothing has arrived.
void round_trip_asleep(benchmark::State& state) {
  Host host(2);
  const SteadyClock clock;
  const auto await_sleeping = [&clock](Endpoint& endpoint) -> std::optional<ReceivedFrame> {
    if (auto frame = endpoint.receive()) return frame;
    endpoint.sleep(clock.now() + std::chrono::seconds(1), clock);
    return endpoint.receive();
  };
  auto own = buffer();
  OtherRank echo(host[1], [&, echoed = buffer()](Endpoint& endpoint) mutable {
    const auto frame = await_sleeping(endpoint);
    if (!frame) return;
    copy_out(endpoint, *frame, echoed.data());
    send(endpoint, 0, echoed.data(), 64);
  });
  for (auto _ : state) {
    send(host[0], 1, own.data(), 64);
    std::optional<ReceivedFrame> frame;
    while (!(frame = await_sleeping(host[0]))) continue;
    copy_out(host[0], *frame, own.data());
  }
}
BENCHMARK(round_trip_asleep)->UseRealTime();

// One operation: publish, then read the peer's cell.
void board_operation(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  constexpr std::uint64_t kGroup = 1;
  Host host(2);
  for (int rank = 0; rank < 2; ++rank) host[rank].board()->open(kGroup);
  auto own = buffer();
  // Rank 1 may be one operation behind when the loop ends: it keeps polling until it must stop.
  OtherRank other(
      host[1], [payload = buffer(), bytes, sequence = std::uint64_t{1}, published = false](Endpoint& endpoint) mutable {
        ExchangeCells& board = *endpoint.board();
        if (!published) board.publish(kGroup, sequence, 7, {payload.data(), bytes});
        published = true;
        const auto cell = board.read(kGroup, WorldRank(0), sequence);
        if (!cell) return static_cast<void>(endpoint.progress());
        std::memcpy(payload.data(), cell->payload, cell->payload_bytes);
        published = false;
        ++sequence;
      });
  ExchangeCells& board = *host[0].board();
  std::uint64_t sequence = 1;
  for (auto _ : state) {
    board.publish(kGroup, sequence, 7, {own.data(), bytes});
    std::optional<ExchangeCell> cell;
    while (!(cell = board.read(kGroup, WorldRank(1), sequence))) host[0].progress();
    std::memcpy(own.data(), cell->payload, cell->payload_bytes);
    ++sequence;
  }
}
BENCHMARK(board_operation)->Arg(0)->Arg(32)->Arg(256)->Arg(2048)->UseRealTime();

// A stream in one direction: rank 0 copies into slots while rank 1 copies out of them.
void stream(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  Host host(2);
  const auto own = buffer();
  std::atomic<std::uint64_t> taken{0};
  OtherRank reader(host[1], [&, target = buffer()](Endpoint& endpoint) mutable {
    const auto frame = endpoint.receive();
    if (!frame) return static_cast<void>(endpoint.progress());
    copy_out(endpoint, *frame, target.data());
    taken.fetch_add(1, std::memory_order_release);
  });
  std::uint64_t sent = 0;
  for (auto _ : state) {
    send(host[0], 1, own.data(), bytes);
    ++sent;
  }
  while (taken.load(std::memory_order_acquire) < sent) continue;
  state.SetBytesProcessed(static_cast<std::int64_t>(sent * bytes));
}
BENCHMARK(stream)->Arg(64)->Arg(4160)->Arg(65600)->Arg(kMaxFrameBytes)->UseRealTime();

// The baseline of the stream: the same two copies with only a flag per slot between them. The rest
// is the machine's time for moving cache lines from core to core.
void bare_stream(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kSlots = 4;
  struct alignas(64) Flag {
    std::atomic<bool> full{false};
  };
  std::array<Flag, kSlots> flags;
  std::vector<std::byte> slots(kSlots * kMaxFrameBytes, std::byte{1});
  const auto source = buffer();
  std::atomic<bool> stop{false};
  std::thread reader([&, target = buffer()]() mutable {
    for (std::size_t slot = 0;; slot = (slot + 1) % kSlots) {
      while (!flags[slot].full.load(std::memory_order_acquire)) {
        if (stop.load(std::memory_order_relaxed)) return;
      }
      std::memcpy(target.data(), slots.data() + slot * kMaxFrameBytes, bytes);
      benchmark::ClobberMemory();
      flags[slot].full.store(false, std::memory_order_release);
    }
  });
  std::size_t slot = 0;
  for (auto _ : state) {
    while (flags[slot].full.load(std::memory_order_acquire)) continue;
    std::memcpy(slots.data() + slot * kMaxFrameBytes, source.data(), bytes);
    flags[slot].full.store(true, std::memory_order_release);
    slot = (slot + 1) % kSlots;
  }
  stop = true;
  reader.join();
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}
BENCHMARK(bare_stream)->Arg(4160)->Arg(65600)->Arg(kMaxFrameBytes)->UseRealTime();

// One core copies a frame's bytes, always to the same address, or through as many bytes as a
// frame queue's large slots have.
void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const auto slots = static_cast<std::size_t>(state.range(1));
  const auto source = buffer();
  std::vector<std::byte> target(slots * kMaxFrameBytes, std::byte{1});
  std::size_t slot = 0;
  for (auto _ : state) {
    std::memcpy(target.data() + slot * kMaxFrameBytes, source.data(), bytes);
    benchmark::ClobberMemory();
    slot = (slot + 1) % slots;
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes));
}
BENCHMARK(copy)->ArgNames({"bytes", "slots"})->ArgsProduct({{4160, 65600, kMaxFrameBytes}, {1, 16}});

// One poll of a rank that spins, with nothing to receive.
void idle_look(benchmark::State& state) {
  const auto peers = static_cast<int>(state.range(0));
  Host host(peers + 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(host[0].progress());
    benchmark::DoNotOptimize(host[0].receive());
  }
}
BENCHMARK(idle_look)->ArgName("peers")->Arg(1)->Arg(3)->Arg(7);

}  // namespace
}  // namespace qccl
