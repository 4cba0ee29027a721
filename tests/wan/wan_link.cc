// The wires between hosts that are network namespaces, in user space: delay, rate, queue, jitter, loss and a cap for
// each flow, for kernels without netem. scripts/wan.sh starts it. Each host's eth0 is a TUN device that it reads.
//
//   packet of host A -> its flow's cap -> A's link, up -> delay -> B's link, down -> host B
//
// Prints "ready" once the devices exist. SIGTERM or SIGINT ends it; it then prints what passed and what was dropped.
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <ctime>
#include <map>
#include <optional>
#include <random>
#include <system_error>
#include <unordered_map>

#include "wan/wan_packet.h"

namespace qccl::wan {
namespace {

constexpr std::size_t kMaxPacketBytes = 66 * 1024;

double now_ns() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::system_error(errno, std::generic_category(), what);
}

// A host's link. Rates in bytes a second, 0: unlimited; queues in bytes, 0: rate times round trip, at least 256 KiB.
struct Link {
  double rate = 0;  // both ways, unless one of the next two is given
  std::optional<double> up_rate, down_rate;
  double queue = 0;
  std::optional<double> up_queue, down_queue;

  Stage up(double round_trip_ns) const {
    return stage(up_rate.value_or(rate), up_queue.value_or(queue), round_trip_ns);
  }
  Stage down(double round_trip_ns) const {
    return stage(down_rate.value_or(rate), down_queue.value_or(queue), round_trip_ns);
  }

  static Stage stage(double rate, double queue, double round_trip_ns) {
    return {rate, queue > 0 ? queue : std::max(256.0 * 1024, rate * round_trip_ns / 1e9)};
  }
};

struct Options {
  std::string cluster;
  int hosts = 2;
  Link link;
  std::map<std::size_t, Link> of_host;  // by index, where it is another
  double flow_rate = 0;                 // bytes a second of a flow: a TCP connection, one way
  double flow_queue = 0;                // bytes, as queue
  double delay_ns = 0;                  // one way
  double jitter_ns = 0;                 // largest additional delay; packets stay in order
  double loss = 0;                      // share of packets, 0 to 1
  std::uint64_t seed = 1;
};

int open_tun() {
  const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  require(fd >= 0, "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
  std::strncpy(request.ifr_name, "eth0", IFNAMSIZ - 1);
  require(ioctl(fd, TUNSETIFF, &request) == 0, "TUNSETIFF");
  require(ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) == 0, "TUNSETOFFLOAD");
  return fd;
}

// Opens eth0 in each namespace CLUSTER-1, CLUSTER-2, ...
std::vector<int> open_devices(const Options& options) {
  const int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  require(own >= 0, "/proc/self/ns/net");
  std::vector<int> devices;
  for (int host = 1; host <= options.hosts; ++host) {
    const std::string path = "/run/netns/" + options.cluster + "-" + std::to_string(host);
    const int space = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(space >= 0 && setns(space, CLONE_NEWNET) == 0, path);
    close(space);
    devices.push_back(open_tun());
  }
  require(setns(own, CLONE_NEWNET) == 0, "setns");
  close(own);
  return devices;
}

class Wan {
 public:
  explicit Wan(const Options& options) : options_(options), random_(options.seed) {
    poller_ = epoll_create1(EPOLL_CLOEXEC);
    require(poller_ >= 0, "epoll_create1");
    for (const int device : open_devices(options)) {
      epoll_event event{.events = EPOLLIN, .data = {.u64 = hosts_.size()}};
      require(epoll_ctl(poller_, EPOLL_CTL_ADD, device, &event) == 0, "epoll_ctl");
      const auto own = options.of_host.find(hosts_.size());
      const Link& link = own == options.of_host.end() ? options.link : own->second;
      Host& host = hosts_.emplace_back();
      host.device = device;
      host.out = link.up(2 * options.delay_ns);
      host.in = link.down(2 * options.delay_ns);
    }
  }

  void run(const volatile std::sig_atomic_t& stop) {
    std::array<epoll_event, 64> events{};
    while (!stop) {
      const double next = move_due_packets();
      const double wait_ns = std::max(0.0, next - now_ns());
      const timespec limit{static_cast<time_t>(wait_ns / 1e9), static_cast<long>(std::fmod(wait_ns, 1e9))};
      const int ready = epoll_pwait2(poller_, events.data(), events.size(), next < kNever ? &limit : nullptr, nullptr);
      for (int i = 0; i < ready; ++i) read_from(hosts_[events[static_cast<std::size_t>(i)].data.u64]);
    }
  }

  void report() const {
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const Counters& c = hosts_[i].counters;
      std::cout << "host " << i + 1 << ": " << c.sent_bytes << " bytes out, " << c.delivered_bytes
                << " in; packets dropped: " << c.dropped_by_flow << " by flow caps, " << c.dropped_out << " out, "
                << c.dropped_in << " in, " << c.lost << " lost, " << c.refused << " refused\n";
    }
  }

 private:
  void read_from(Host& host) {
    for (int i = 0; i < 64; ++i) {
      const ssize_t size = read(host.device, buffer_.data(), buffer_.size());
      if (size <= static_cast<ssize_t>(kVirtioHeaderBytes + kIpHeaderBytes)) return;
      take(host, {buffer_.data(), static_cast<std::size_t>(size)});
    }
  }

  void take(Host& host, std::span<const char> bytes) {
    const int target = target_host(bytes);
    if (target < 0 || target >= options_.hosts) return;
    if (options_.loss > 0 && uniform_(random_) < options_.loss) {
      ++host.counters.lost;
      return;
    }
    Packet packet{now_ns(), target, {bytes.begin(), bytes.end()}};
    if (options_.flow_rate <= 0) return enter_link(host, std::move(packet));
    auto& flow = flows_.try_emplace(flow_key(bytes), flow_stage_).first->second;
    packet.due_ns = flow.pass(packet.due_ns, wire_bytes(bytes));
    if (packet.due_ns == kDropped) {
      ++host.counters.dropped_by_flow;
      return;
    }
    const auto at = std::ranges::upper_bound(host.held, packet.due_ns, {}, &Packet::due_ns);
    host.held.insert(at, std::move(packet));
  }

  void enter_link(Host& host, Packet&& packet) {
    const double bytes = wire_bytes(packet.bytes);
    const double through = host.out.pass(packet.due_ns, bytes);
    if (through == kDropped) {
      ++host.counters.dropped_out;
      return;
    }
    host.counters.sent_bytes += static_cast<std::uint64_t>(bytes);
    packet.due_ns = through + options_.delay_ns + uniform_(random_) * options_.jitter_ns;
    if (!host.travelling.empty()) packet.due_ns = std::max(packet.due_ns, host.travelling.back().due_ns);
    host.travelling.push_back(std::move(packet));
  }

  // Moves the packets that are due from queue to queue; when the next one is due.
  double move_due_packets() {
    const double now = now_ns();
    for (Host& host : hosts_) {
      for (; due(host.held) <= now; host.held.pop_front()) enter_link(host, std::move(host.held.front()));
    }
    // In order of arrival, because hosts that send to one host share its link.
    while (true) {
      Host& first = *std::ranges::min_element(hosts_, {}, [](const Host& host) { return due(host.travelling); });
      if (due(first.travelling) > now) break;
      arrive(std::move(first.travelling.front()));
      first.travelling.pop_front();
    }
    double next = kNever;
    for (Host& host : hosts_) {
      for (; due(host.arriving) <= now; host.arriving.pop_front()) deliver(host, host.arriving.front());
      next = std::min({next, due(host.arriving), due(host.travelling), due(host.held)});
    }
    return next;
  }

  void arrive(Packet&& packet) {
    Host& host = hosts_[static_cast<std::size_t>(packet.target)];
    packet.due_ns = host.in.pass(packet.due_ns, wire_bytes(packet.bytes));
    if (packet.due_ns == kDropped) {
      ++host.counters.dropped_in;
    } else {
      host.arriving.push_back(std::move(packet));
    }
  }

  static void deliver(Host& host, const Packet& packet) {
    if (write(host.device, packet.bytes.data(), packet.bytes.size()) < 0) {
      ++host.counters.refused;
    } else {
      host.counters.delivered_bytes += packet.bytes.size();
    }
  }

  const Options options_;
  const Stage flow_stage_ = Link::stage(options_.flow_rate, options_.flow_queue, 2 * options_.delay_ns);
  std::vector<Host> hosts_;
  std::unordered_map<std::uint64_t, Stage> flows_;
  std::vector<char> buffer_ = std::vector<char>(kMaxPacketBytes);
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_{0, 1};
  int poller_ = -1;
};

using Units = std::map<std::string, double>;

CLI::AsNumberWithUnit rates() {
  return CLI::AsNumberWithUnit(Units{{"gbit", 1.25e8}, {"mbit", 1.25e5}, {"kbit", 125}});
}
CLI::AsNumberWithUnit sizes() { return CLI::AsNumberWithUnit(Units{{"k", 1024}, {"m", 1 << 20}}); }

void add_link_flags(CLI::App& app, Link& link) {
  app.add_option("--rate", link.rate, "Of a host's link, each way (default: unlimited)")->transform(rates());
  app.add_option("--up-rate", link.up_rate, "Out of the host (default: --rate)")->transform(rates());
  app.add_option("--down-rate", link.down_rate, "Into the host (default: --rate)")->transform(rates());
  app.add_option("--queue", link.queue, "Of a link (default: its rate times the round trip)")->transform(sizes());
  app.add_option("--up-queue", link.up_queue, "Before the way out (default: --queue)")->transform(sizes());
  app.add_option("--down-queue", link.down_queue, "Before the way in (default: --queue)")->transform(sizes());
}

void add_flags(CLI::App& app, Options& options) {
  const CLI::AsNumberWithUnit time(Units{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}});
  app.add_option("--cluster", options.cluster, "Namespaces CLUSTER-1, CLUSTER-2, ...")->required();
  app.add_option("--hosts", options.hosts, "Hosts (default 2)")->check(CLI::Range(1, 250));
  add_link_flags(app, options.link);
  app.footer("At the end: --host N and flags of its link, where it is not as the others'; again for more hosts.");
  app.add_option("--flow-rate", options.flow_rate, "Of a TCP connection, each way (default: unlimited)")
      ->transform(rates());
  app.add_option("--delay", options.delay_ns, "One way (default 0)")->transform(time);
  app.add_option("--jitter", options.jitter_ns, "Largest additional delay; packets stay in order")->transform(time);
  app.add_option("--flow-queue", options.flow_queue, "Of a flow's cap (default as --queue)")->transform(sizes());
  app.add_option("--loss", options.loss, "Share of packets lost (default 0)")->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", options.seed, "Of loss and jitter (default 1)");
}

volatile std::sig_atomic_t stop = 0;

// The flags up to the first --host, and those of each host from its --host to the next.
void parse(CLI::App& app, const std::vector<std::string>& words, Options& options) {
  std::vector<std::vector<std::string>> parts(1);
  for (const std::string& word : words) {
    if (word == "--host") parts.emplace_back();
    parts.back().push_back(word);
  }
  for (auto& part : parts) std::ranges::reverse(part);  // as CLI::App::parse() takes them
  app.parse(parts.front());
  for (auto& part : std::span(parts).subspan(1)) {
    int number = 0;
    Link link = options.link;
    CLI::App of_host("The link of a host.", "wan_link");
    of_host.add_option("--host", number)->required()->check(CLI::Range(1, options.hosts));
    add_link_flags(of_host, link);
    of_host.parse(part);
    options.of_host[static_cast<std::size_t>(number - 1)] = link;
  }
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Delays, shapes and loses packets between network namespaces.", "wan_link");
  add_flags(app, options);
  try {
    parse(app, {argv + 1, argv + argc}, options);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  prctl(PR_SET_TIMERSLACK, 1);
  struct sigaction action {};
  action.sa_handler = [](int) { stop = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  try {
    Wan wan(options);
    std::cout << "ready" << std::endl;
    wan.run(stop);
    wan.report();
  } catch (const std::system_error& error) {
    std::cerr << "wan_link: " << error.what() << "\n";
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace qccl::wan

int main(int argc, char** argv) { return qccl::wan::run(argc, argv); }
