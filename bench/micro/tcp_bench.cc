// The cost of the TCP transport over a bare socket, on loopback between two processes.
//
//   ping-pong: one small message back and forth, both sides spinning; median microseconds one way
//   spin:      one progress() while nothing arrives; processor microseconds
//   duplex:    both sides send as fast as they can at the same time; GB/s in each direction
//
// Measurements alternate (bare, tcp, tcp, bare, ...), because the machine's speed changes from
// second to second. Prints the medians and the median ratio of adjacent measurements.
//
//   tcp_bench [ROUNDS] [MEGABYTES] [NAME]      only measurements whose name begins with NAME
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "os/fd.h"
#include "os/net/socket.h"
#include "transport/tcp/tcp_endpoint.h"
#include "wire/frame.h"

namespace {

using namespace qccl;
using namespace std::chrono_literals;

const SteadyClock steady;
constexpr Nanoseconds kSpin = 50us;  // as long as the engine spins before it sleeps

// Processor time of this process so far: steadier than the wall clock on a shared machine.
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double seconds_since(TimePoint begin) { return std::chrono::duration<double>(steady.now() - begin).count(); }

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "tcp_bench: {}\n", what);
  std::exit(1);
}

struct Link {
  os::Fd near, far;
};

Link loopback_link() {
  auto listener = os::listen_tcp("127.0.0.1", 0);
  if (!listener) fail(listener.error().message);
  auto dialled = os::connect_tcp("127.0.0.1", os::local_port(*listener).value(), steady.now() + 5s, steady);
  if (!dialled) fail(dialled.error().message);
  auto accepted = os::accept_connection(*listener);
  if (!accepted || !accepted->has_value()) fail("no connection to accept");
  Link link{std::move(*dialled), std::move(**accepted)};
  for (const os::Fd* end : {&link.near, &link.far}) os::set_congestion_control(*end, "reno");
  if (!os::set_no_delay(link.near).ok() || !os::set_no_delay(link.far).ok()) fail("no TCP_NODELAY");
  return link;
}

// Binds a side to its own core, if there are two.
void pin_to_core(unsigned core) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ::sched_setaffinity(0, sizeof(one), &one);
}

// Runs `side` on one end in a child and on the other end here; returns the result from here.
double between_two_processes(const std::function<double(os::Fd, bool here)>& side) {
  Link link = loopback_link();
  os::remove_from_fork_list(link.near.get());
  os::remove_from_fork_list(link.far.get());
  const pid_t child = ::fork();
  if (child == 0) {
    link.near.reset();
    pin_to_core(1);
    side(std::move(link.far), false);
    ::_exit(0);
  }
  link.far.reset();
  pin_to_core(0);
  const double result = side(std::move(link.near), true);
  ::waitpid(child, nullptr, 0);
  return result;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Half of the median round trip. The median hides interruptions by other processes, which affect few trips.
double ping_pong(bool here, double seconds, const std::function<void()>& send, const std::function<bool()>& wait) {
  std::vector<double> trips;
  trips.reserve(1'000'000);
  const auto begin = steady.now();
  for (auto sent = begin; !here || seconds_since(begin) < seconds; sent = steady.now()) {
    if (here) send();
    if (!wait()) break;
    if (!here) send();
    if (here) trips.push_back(seconds_since(sent));
  }
  return trips.empty() ? 0 : median(std::move(trips)) * 1e6 / 2;
}

// ---- bare sockets

bool spin_read(int fd, Bytes target) {
  for (std::size_t done = 0; done < target.size();) {
    const auto io = os::read_some(fd, target.subspan(done));
    if (io.lost()) return false;
    done += io.bytes;
  }
  return true;
}

double bare_ping_pong(os::Fd fd, bool here, std::size_t bytes, double seconds) {
  std::vector<std::byte> message(bytes);
  return ping_pong(
      here, seconds, [&] { os::write_some(fd.get(), message); }, [&] { return spin_read(fd.get(), message); });
}

double bare_duplex(os::Fd fd, std::size_t total) {
  std::vector<std::byte> out(256 * 1024), in(256 * 1024);
  const auto begin = steady.now();
  std::size_t sent = 0, received = 0;
  while (sent < total || received < total) {
    const auto wrote = sent < total
                           ? os::write_some(fd.get(), ConstBytes(out).first(std::min(out.size(), total - sent)))
                           : os::IoResult{};
    const auto got = received < total ? os::read_some(fd.get(), in) : os::IoResult{};
    if (got.lost() || wrote.lost()) fail("bare connection lost");
    sent += wrote.bytes;
    received += got.bytes;
    if (wrote.bytes > 0 || got.bytes > 0) continue;
    pollfd entry{fd.get(), static_cast<short>((received < total ? POLLIN : 0) | (sent < total ? POLLOUT : 0)), 0};
    ::poll(&entry, 1, 1000);
  }
  return static_cast<double>(total) / seconds_since(begin) / 1e9;
}

// ---- the transport

struct Side {
  // Makes `idle_peers` connections beside the one in use; they are read directly or through epoll.
  Side(os::Fd fd, bool here, std::size_t idle_peers = 0, bool directly = true) : peer(here ? 1 : 0) {
    auto made = os::Poller::create();
    if (!made) fail(made.error().message);
    poller = std::make_unique<os::Poller>(std::move(*made));
    std::vector<std::vector<secure::Stream>> sockets(2);
    sockets[static_cast<std::size_t>(peer)].push_back(std::move(fd));
    for (std::size_t i = 0; i < idle_peers; ++i) {
      Link link = loopback_link();
      sockets.emplace_back().push_back(std::move(link.near));
      idle.push_back(std::move(link.far));
    }
    auto transport = make_tcp_endpoint(*poller, {.max_directly_read = directly ? 1000 : 0}, std::move(sockets));
    if (!transport) fail(transport.error().message);
    endpoint = std::move(*transport);
  }

  bool send(std::size_t payload_bytes) {
    const std::size_t bytes = wire::kHeaderBytes + payload_bytes;
    Reservation room = endpoint->reserve(WorldRank(peer), bytes, TrafficClass::data);
    if (!room) return false;
    wire::FrameHeader header;
    header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
    wire::encode_header(header, room.bytes().data());
    endpoint->commit(std::move(room), bytes, {});
    return true;
  }

  // Spins, then sleeps, until a frame has come; returns 0 when the peer is lost.
  std::size_t wait_frame() {
    auto idle_since = steady.now();
    for (;;) {
      endpoint->progress();
      if (auto frame = endpoint->receive()) {
        const std::size_t bytes = frame->bytes.size();
        endpoint->release(*frame);
        return bytes;
      }
      if (endpoint->next_loss()) return 0;
      if (steady.now() - idle_since > kSpin) endpoint->sleep(steady.now() + 1s, steady);
    }
  }

  int peer;
  std::vector<os::Fd> idle;
  std::unique_ptr<os::Poller> poller;
  std::unique_ptr<Endpoint> endpoint;
};

double tcp_ping_pong(os::Fd fd, bool here, std::size_t bytes, double seconds) {
  Side side(std::move(fd), here);
  return ping_pong(
      here, seconds, [&] { side.send(bytes); }, [&] { return side.wait_frame() != 0; });
}

double spin_cost(std::size_t peers, bool directly) {
  constexpr int kCalls = 50'000;
  Side side(os::Fd(), true, peers, directly);
  const double before = cpu_seconds();
  for (int i = 0; i < kCalls; ++i) side.endpoint->progress();
  return (cpu_seconds() - before) * 1e6 / kCalls;
}

double tcp_duplex(os::Fd fd, bool here, std::size_t payload_bytes, std::size_t total) {
  Side side(std::move(fd), here);
  const auto begin = steady.now();
  std::size_t sent = 0, received = 0;
  for (auto moved_at = begin; sent < total || received < total || !side.endpoint->flushed();) {
    bool moved = side.endpoint->progress();
    while (auto frame = side.endpoint->receive()) {
      received += frame->bytes.size() - wire::kHeaderBytes;
      side.endpoint->release(*frame);
    }
    for (; sent < total && side.send(payload_bytes); sent += payload_bytes) moved = true;
    if (received < total && side.endpoint->next_loss()) fail("connection lost");
    if (moved)
      moved_at = steady.now();
    else if (steady.now() - moved_at > kSpin)
      side.endpoint->sleep(steady.now() + 10s, steady);
  }
  return static_cast<double>(total) / seconds_since(begin) / 1e9;
}

// ---- alternating measurements

using Measurement = std::function<double(os::Fd, bool)>;

struct Case {
  std::string name;
  const char* unit;
  Measurement bare;
  Measurement tcp;
};

void compare(const Case& measured, int rounds, const char* only) {
  const auto& [name, unit, bare, tcp] = measured;
  if (!name.starts_with(only)) return;
  std::vector<double> bares, tcps, ratios, cpu_ratios;
  for (int round = 0; round < rounds; ++round) {
    const bool bare_first = round % 2 == 0;
    double b = 0, t = 0, bare_cpu = 0, tcp_cpu = 0;
    const auto run = [](const Measurement& measurement, double& result, double& cpu) {
      const double before = cpu_seconds();
      result = between_two_processes(measurement);
      cpu = cpu_seconds() - before;
    };
    if (bare_first) run(bare, b, bare_cpu);
    run(tcp, t, tcp_cpu);
    if (!bare_first) run(bare, b, bare_cpu);
    bares.push_back(b), tcps.push_back(t), ratios.push_back(t / b), cpu_ratios.push_back(tcp_cpu / bare_cpu);
  }
  fmt::print("{:<22} bare {:8.3f} {}   tcp {:8.3f} {}   ratio {:.3f}   cpu ratio {:.3f}\n", name, median(bares), unit,
             median(tcps), unit, median(ratios), median(cpu_ratios));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 11;
  const std::size_t megabytes = argc > 2 ? static_cast<std::size_t>(std::atoi(argv[2])) : 512;
  const double seconds = 0.3;
  const char* const only = argc > 3 ? argv[3] : "";
  for (const std::size_t bytes : {64, 4096}) {
    compare({fmt::format("ping-pong {} B", bytes), "us",
             [&](os::Fd fd, bool here) { return bare_ping_pong(std::move(fd), here, bytes, seconds); },
             [&](os::Fd fd, bool here) { return tcp_ping_pong(std::move(fd), here, bytes, seconds); }},
            rounds, only);
  }
  if (std::string_view("spin").starts_with(only)) {
    for (const std::size_t peers : {1, 2, 4, 8, 16}) {
      fmt::print("spin, {:>2} silent peers     direct {:8.3f} us   epoll {:8.3f} us\n", peers, spin_cost(peers, true),
                 spin_cost(peers, false));
    }
  }
  for (const std::size_t kibibytes : {256, 64, 16, 2}) {
    compare({fmt::format("duplex {} KiB frames", kibibytes), "GB/s",
             [&](os::Fd fd, bool) { return bare_duplex(std::move(fd), megabytes << 20); },
             [&](os::Fd fd, bool here) { return tcp_duplex(std::move(fd), here, kibibytes * 1024, megabytes << 20); }},
            rounds, only);
  }
  return 0;
}
