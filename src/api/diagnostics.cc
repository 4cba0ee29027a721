// The public diagnose(): one function for each topic. None changes anything.
#include "qccl/diagnostics.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/findings.h"
#include "base/options.h"
#include "choice/algorithm_table.h"
#include "device_engine/device_findings.h"
#include "job/context.h"
#include "kernels/simd.h"
#include "os/memory.h"
#include "os/net/socket.h"
#include "os/process.h"
#include "os/secret_file.h"
#include "transport/shm/layout.h"

namespace qccl {
namespace {

using bootstrap::LaunchIdentity;
using Level = Finding::Level;

constexpr std::uint64_t kMiB = 1 << 20;

// The largest memory that two ranks of a host share: the largest file that a rank creates, except for its heap.
constexpr std::size_t kPairBytes = shm::pair_bytes(shm::kMaxLargeSlots);
// Listener, store, poller, standard streams and the program's own files.
constexpr std::uint64_t kBaseFiles = 32;
// TCP, unix socket, memory and doorbell of a neighbour, or the connections to a distant peer.
constexpr std::uint64_t kFilesPerPeer = 4;
// A link of 10 Gbit/s with 5 ms there and back holds this much.
constexpr std::uint64_t kGoodSocketBytes = 6 * kMiB;

std::string amount(std::uint64_t bytes) {
  if (bytes == os::kUnlimited) return "unlimited";
  return bytes >= kMiB ? fmt::format("{} MiB", bytes / kMiB) : fmt::format("{} KiB", bytes / 1024);
}

std::string count(std::uint64_t number) {
  return number == os::kUnlimited ? std::string("unlimited") : fmt::format("{}", number);
}

void describe_rank(const LaunchIdentity& own, Findings& found) {
  const std::string local = own.local_rank < 0 ? std::string()
                            : own.local_world == 0
                                ? fmt::format(", local rank {}", own.local_rank)
                                : fmt::format(", local rank {} of {}", own.local_rank, own.local_world);
  found.fact("rank", fmt::format("{} of {}{}, from {}", own.rank, own.world, local, own.source));
  if (own.world == 1) return found.fact("rendezvous", "none: this process is alone");
  if (own.pmi_descriptor >= 0)
    return found.fact("rendezvous", "at rank 0, whose address comes from the launcher (PMI)");
  const char* server = own.hosts_store ? "served by this rank"
                       : own.rank == 0 ? "served by the launcher"
                                       : "served by rank 0 or the launcher";
  if (!own.meeting_socket.empty()) {
    return found.fact("rendezvous", fmt::format("unix socket @{}, {}", own.meeting_socket, server));
  }
  if (own.master_address.empty()) return found.fact("rendezvous", "the program's own store");
  found.fact("rendezvous", fmt::format("{}:{}, {}", own.master_address, own.master_port, server));
}

// Which source of the rank was taken, and why not the others. The last one, a single process, is always available.
void describe_sources(const std::vector<bootstrap::Source>& sources, Findings& found) {
  for (const auto& source : sources) {
    if (source.taken) found.fact("ranks from", fmt::format("{}: {}", source.name, source.reason));
  }
  for (const auto& source : sources) {
    if (!source.taken && source.name != sources.back().name) found.fact("not " + source.name, source.reason);
  }
}

void describe_settings(const comm::Settings& settings, Findings& found) {
  const Options& options = settings.options;
  const char* transports[] = {"automatic (shared memory inside a host, TCP between hosts)", "shm", "tcp"};
  found.fact("transport", transports[static_cast<int>(options.transport)]);
  found.fact("compression",
             settings.compression == none()
                 ? std::string("none: nothing is compressed unless a call asks")
                 : fmt::format("{} from {} bytes on", settings.compression.to_string(), options.compression_min_bytes));
  if (options.link_rate) found.fact("pacing", *options.link_rate);
  if (options.log_file) found.fact("log", fmt::format("of every operation, to {}<rank>.json", *options.log_file));
  const auto cost_environment = comm::cost_environment_of(options);
  if (!cost_environment.ok()) {
    return found.broken("profile", cost_environment.error().message, "correct the variable or the file, or unset it");
  }
  const plan::Profile& profile = cost_environment.value().profile;
  found.fact("profile", fmt::format("{}: measured on {}; links of {:.4g} Gbit/s, {:.3g} us away",
                                    options.profile.value_or("built in"), profile.machine, profile.wire_rate * 8e-9,
                                    profile.wire.latency * 1e6));
}

// The key itself is never shown.
void describe_key(const LaunchIdentity& own, const comm::Settings& settings, const std::string& source,
                  Findings& found) {
  const bool has_key = settings.protection.key != nullptr;
  found.fact("key", !has_key ? "none: whoever reaches the ports of a job on several hosts can join it"
                             : fmt::format("from {}; what ranks send over TCP {}", source,
                                           settings.protection.encrypts ? "is encrypted" : "is not encrypted"));
  if (!has_key && own.world > 1 && !bootstrap::on_one_host(own)) {
    found.warning("key", "ranks may be on several hosts, and the job has no key: who reaches their ports can join it",
                  "make one with qccl key FILE, copy it to every host and set QCCL_KEY_FILE there");
  }
  const auto file = environment("QCCL_KEY_FILE");
  if (file && os::is_readable_by_others(*file)) {
    found.warning("key", *file + " can be read by other users", "chmod 600 " + *file);
  }
}

void describe_cores(const LaunchIdentity& own, Findings& found) {
  const int allowed = os::available_cpus();
  found.fact("host", os::host_name());
  found.fact("cores", fmt::format("{} of {} may be used: {}", allowed, os::online_cpus(), os::allowed_cpus()));
  if (own.local_world > allowed) {
    found.warning("cores", fmt::format("{} ranks on this host share {} cores", own.local_world, allowed),
                  "each small operation then costs a context switch: start at most one rank a core");
  }
}

void describe_simd(Findings& found) {
  const auto targets = kernels::simd_targets();
  found.fact("SIMD", fmt::format("{} of {}", kernels::simd_target(), fmt::join(targets, ", ")));
  const auto asked = environment("QCCL_SIMD");
  if (asked && kernels::accepted_simd(*asked) != *asked) {
    found.warning("SIMD", fmt::format("QCCL_SIMD={} is not available here", *asked),
                  fmt::format("use one of {}", fmt::join(targets, ", ")));
  }
}

void describe_interfaces(const LaunchIdentity& own, TransportChoice transport, Findings& found) {
  const std::string& filter = own.interface_filter;
  const auto interfaces = os::list_interfaces(filter);
  if (!interfaces.ok()) {
    return found.broken("interfaces", interfaces.error().message, "let this process read the system's interfaces");
  }
  std::vector<std::string> words;
  for (const auto& each : interfaces.value()) words.push_back(fmt::format("{} {}", each.name, each.address));
  const std::string chosen = filter.empty() ? "" : fmt::format(" (pass \"{}\" of {})", filter, own.filter_source);
  if (!words.empty()) found.fact("interfaces", fmt::format("{}{}", fmt::join(words, ", "), chosen));
  const bool needed = own.world > 1 && transport != TransportChoice::shm;
  if (words.empty()) {
    const std::string remedy =
        filter.empty() ? "bring an interface up: ip link set lo up" : "correct or unset " + own.filter_source;
    const std::string text = fmt::format("no interface that is up passes the filter \"{}\"", filter);
    needed ? found.broken("interfaces", text, remedy) : found.warning("interfaces", text + ": not needed here", remedy);
  }
  if (!needed || own.master_address.empty()) return;
  const auto source = os::local_address_towards(own.master_address);
  if (source.ok()) return found.fact("route", fmt::format("from {} to {}", source.value(), own.master_address));
  found.broken("route", source.error().message, "correct MASTER_ADDR: it is rank 0's host name or address");
}

// Shared memory counts as a file.
void describe_file_size(Findings& found) {
  const os::Limit size = os::file_size_limit();
  if (size.soft >= shm::kHeapBytes) return found.fact("file size", amount(size.soft));
  const char* as_root = size.hard < shm::kHeapBytes ? " (as root: the hard limit is lower)" : "";
  const std::string consequence =
      size.soft < kPairBytes ? fmt::format("ranks of one host need files of {} to share memory, and use TCP without",
                                           amount(kPairBytes + kMiB - 1))
                             : "all shared buffers (allocate()) of a rank together have no more";
  found.warning("file size", fmt::format("limited to {}: {}", amount(size.soft), consequence),
                fmt::format("ulimit -f unlimited{}", as_root));
}

void describe_memory(const LaunchIdentity& own, TransportChoice transport, Findings& found) {
  const auto probe = os::create_shared_memory("qccl-doctor", kPairBytes);
  if (probe.ok()) {
    found.fact("shared memory", fmt::format("memfd works; /dev/shm, which QCCL does not use, has {} free",
                                            amount(os::free_bytes("/dev/shm"))));
  } else if (transport == TransportChoice::tcp || own.world == 1) {
    found.warning("shared memory", probe.error().message, "not needed here; ranks of one host would use TCP");
  } else if (transport == TransportChoice::automatic) {
    found.warning("shared memory", probe.error().message, "ranks of one host use TCP until that limit is raised");
  } else {
    found.broken("shared memory", probe.error().message, "raise that limit, or unset QCCL_TRANSPORT");
  }
  describe_file_size(found);
  const os::Limit locked = os::locked_memory_limit();
  found.fact("locked memory", fmt::format("{} (QCCL locks none)", amount(locked.soft)));
}

// `told`: QCCL_CONNECTIONS.
void describe_files(const LaunchIdentity& own, std::optional<int> told, Findings& found) {
  const os::Limit files = os::open_files_limit();
  const std::uint64_t open = os::open_file_count();
  const std::uint64_t per_peer = std::max(kFilesPerPeer, static_cast<std::uint64_t>(told.value_or(1)));
  const std::uint64_t needed = open + kBaseFiles + per_peer * static_cast<std::uint64_t>(own.world - 1);
  const std::string text =
      fmt::format("{} may be open, {} are, {} ranks need about {}", count(files.soft), open, own.world, needed);
  if (files.soft >= needed) return found.fact("open files", text);
  found.broken(
      "open files", text,
      fmt::format("ulimit -n {}{}", needed + 1024, files.hard < needed ? " (as root: the hard limit is lower)" : ""));
}

void describe_tcp(Findings& found) {
  const std::string folder = "/proc/sys/net/ipv4/";
  found.fact("congestion control", os::system_value(folder + "tcp_congestion_control").value_or("unknown") +
                                       " between hosts, QCCL_CONGESTION (auto: cubic, bbr on a line that loses "
                                       "packets) between distant ones, reno inside a host");
  for (const char* name : {"tcp_wmem", "tcp_rmem"}) {
    const auto sizes = os::tcp_buffer_sizes(name);
    if (!sizes) continue;
    const auto [least, initial, largest] = *sizes;
    // A buffer passes in a round trip.
    found.fact(name, fmt::format("grows to {}, which carries {:.2g} Gbit/s over a round trip of 100 ms (docs/lines.md)",
                                 amount(largest), static_cast<double>(largest) * 8e-9 / 0.1));
    if (largest >= kGoodSocketBytes / 2) continue;
    found.warning(name,
                  fmt::format("grows to {} only, which does not fill a fast link with some delay", amount(largest)),
                  fmt::format("sysctl -w net.ipv4.{}=\"{} {} {}\"", name, least, initial, kGoodSocketBytes));
  }
}

}  // namespace

std::vector<Finding> diagnose(const InitOptions& options) {
  Findings found;
  const auto settings = comm::merge_options(options);
  const auto lookup = [](const char* name) { return environment(name); };
  const auto own = bootstrap::discover_identity(options, lookup);
  if (!own.ok()) found.broken("rank", own.error().message, "docs/launchers.md has the variables of each launcher");
  if (!settings.ok()) found.broken("settings", settings.error().message, "correct the variable or unset it");
  const LaunchIdentity launch = own.ok() ? own.value() : LaunchIdentity();
  const TransportChoice transport = settings.ok() ? settings.value().options.transport : TransportChoice::automatic;
  if (own.ok()) describe_rank(launch, found);
  describe_sources(bootstrap::list_sources(options, lookup), found);
  if (settings.ok()) describe_settings(settings.value(), found);
  if (settings.ok()) describe_key(launch, settings.value(), secure::key_source(options.key), found);
  describe_cores(launch, found);
  describe_simd(found);
  describe_interfaces(launch, transport, found);
  describe_memory(launch, transport, found);
  describe_files(launch, settings.ok() ? settings.value().options.connections : std::nullopt, found);
  describe_tcp(found);
  engine::describe_devices(launch.local_rank, settings.ok() ? settings.value().options : Options(), found);
  return std::move(found.list);
}

}  // namespace qccl
