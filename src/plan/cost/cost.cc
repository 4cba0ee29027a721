#include "plan/cost/cost.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

constexpr double kNotHidden = 0.2;

// Each stream that arrives beside others has two packets on their way at least, which its sender's TCP does not go
// below. Of the time that a line takes, such packets cost this part of their share of the window: queues drop them.
// Measured with 8 and 16 hosts, 10 to 50 Mbit/s, 1 and 10 ms (docs/decisions/0021-many-hosts.md).
constexpr double kCrowding = 0.4;
constexpr double kLeastOnTheWay = 2 * 1514;

struct RankLoad {
  double sent = 0;  // bytes over the wire
  double received = 0;
  double sent_far = 0;  // of these, to and from other sites
  double received_far = 0;
  double processor = 0;  // seconds
  double largest_stream = 0;
  double largest_slice = 0;  // bytes of input
  double most_at_once = 0;   // long streams over the wire that arrive while at least as many leave
  double longest_passage = 0;
};

// Streams grouped by the moment (lane order and phase) at which they arrive or leave together.
class Contention {
 public:
  void clear() { peers_.clear(); }
  void add(int after, int phase, int peer) { peers_[{after, phase}].insert(peer); }
  std::size_t most() const {
    std::size_t most = 0;
    for (const auto& [moment, peers] : peers_) most = std::max(most, peers.size());
    return most;
  }

 private:
  std::map<std::pair<int, int>, std::set<int>> peers_;
};

// Measures the work of one rank in a plan.
class LoadMeter {
 public:
  LoadMeter(const Request& request, const Places& places, const MachineModel& links, const Encoding& encoding)
      : request_(request), places_(places), links_(links), encoding_(encoding) {}

  RankLoad measure(int rank) {
    rank_ = rank;
    load_ = {};
    for (Contention* const each : {&arriving_, &leaving_, &adding_, &giving_}) each->clear();
    const RankSchedule schedule = schedule_of(request_, rank);
    count_peers(schedule);
    for (const Lane& lane : schedule.lanes) add(lane);
    load_.most_at_once = static_cast<double>(std::min(arriving_.most(), leaving_.most()));
    if (std::min(adding_.most(), giving_.most()) > 1) load_.most_at_once = std::max(load_.most_at_once, 2.0);
    load_.longest_passage =
        longest_passage(schedule, request_.slice_elements, [this](const Lane& lane) { return wire_bytes(lane); });
    return load_;
  }

 private:
  // Counts the peers whose streams come to this rank.
  void count_peers(const RankSchedule& schedule) {
    std::set<int> peers;
    for (const Lane& lane : schedule.lanes) {
      for (const Step& step : lane.steps) {
        if (receives(step.kind)) peers.insert(step.peers.begin(), step.peers.end());
      }
    }
    further_peers_ = peers.empty() ? 0 : static_cast<double>(peers.size() - 1);
  }

  void add(const Lane& lane) {
    elements_ = static_cast<double>(lane.count);
    input_ = elements_ * encoding_.element_bytes;
    after_ = lane.after;
    slices_ = lane.count == 0 ? 1 : static_cast<double>(slice_count(lane.count, request_.slice_elements));
    const auto slice = static_cast<double>(std::min(lane.count, request_.slice_elements));
    load_.largest_slice = std::max(load_.largest_slice, slice * encoding_.element_bytes);
    for (std::size_t i = 0; i < lane.steps.size(); ++i) {
      for (const int peer : lane.steps[i].peers) move(lane.steps[i], peer);
      load_.processor += seconds_of(work_of(lane, i, request_.compressed), input_, links_);
    }
  }

  double payload(const Step& step) const { return payload(step, elements_); }
  double payload(const Step& step, double elements) const {
    const bool is_coded = request_.compressed && !step.raw;
    return elements * (is_coded ? encoding_.encoded_bytes : encoding_.element_bytes);
  }
  double wire_bytes(const Lane& lane) const {
    double sent = 0;
    double received = 0;
    for (const Step& step : lane.steps) {
      for (const int peer : step.peers) {
        if (places_.are_local(rank_, peer)) continue;
        (receives(step.kind) ? received : sent) += payload(step, static_cast<double>(lane.count));
      }
    }
    return std::max(sent, received);
  }

  void move(const Step& step, int peer) {
    const bool local = places_.are_local(rank_, peer);
    const LinkCost& link = local ? links_.local : links_.wire;
    const double bytes = payload(step) + encoding_.frame_bytes * slices_;
    const bool is_long = payload(step) > encoding_.eager_bytes;
    const double slower = is_long ? 1 + link.contention * further_peers_ : 1;
    load_.processor += slices_ * link.frame_seconds + slower * seconds(bytes, link.rank_rate);
    load_.largest_stream = std::max(load_.largest_stream, payload(step));
    if (local) return;
    (receives(step.kind) ? load_.received : load_.sent) += bytes;
    if (!places_.are_near(rank_, peer)) (receives(step.kind) ? load_.received_far : load_.sent_far) += bytes;
    if (!is_long) return;
    if (slices_ > 1) return (receives(step.kind) ? arriving_ : leaving_).add(after_, step.phase, peer);
    if (step.kind == StepKind::recv_reduce) adding_.add(after_, step.phase, peer);
    if (sends(step.kind)) giving_.add(after_, step.phase, peer);
  }

  const Request& request_;
  const Places& places_;
  const MachineModel& links_;
  const Encoding& encoding_;
  int rank_ = 0;
  RankLoad load_;
  double elements_ = 0;
  double input_ = 0;
  double slices_ = 0;
  double further_peers_ = 0;
  int after_ = -1;
  Contention arriving_;  // streams of several slices over the wire
  Contention leaving_;
  Contention adding_;  // the same of one slice, which are added; and all that leave
  Contention giving_;
};

// The first hosts (whose ranks own the only chunks of small data), the root's, the largest, the smallest, and others
// spread evenly, with about `most_ranks` ranks in total.
std::set<int> sample_hosts(const Hosts& hosts, int root, int most_ranks) {
  std::vector<int> all(static_cast<std::size_t>(hosts.count()));
  std::iota(all.begin(), all.end(), 0);
  const auto [least, largest] = std::ranges::minmax_element(all, {}, [&](int host) { return hosts.size_of(host); });
  std::set<int> chosen{0, std::min(1, hosts.count() - 1), hosts.host_of(root), *least, *largest};
  const int spread = std::max(1, most_ranks / hosts.size_of(*largest));
  for (int i = 0; i < spread; ++i) chosen.insert(static_cast<int>(std::int64_t{i} * hosts.count() / spread));
  return chosen;
}

// If one host has all ranks, none sends over the wire, and a sample of them is enough.
std::vector<int> sample_ranks(const std::vector<int>& ranks, int root, int most_ranks) {
  std::set<int> chosen{ranks.front(), ranks[std::min<std::size_t>(1, ranks.size() - 1)], ranks.back(), root};
  for (std::size_t i = 0, most = static_cast<std::size_t>(most_ranks); i < most; ++i) {
    chosen.insert(ranks[i * ranks.size() / most]);
  }
  return {chosen.begin(), chosen.end()};
}

// The far bytes of a site's ranks, of which some are examined.
class SiteLoads {
 public:
  explicit SiteLoads(const Hosts& sites) : sites_(sites), loads_(static_cast<std::size_t>(sites.count())) {}

  void add(int rank, const RankLoad& load) {
    Load& site = loads_[static_cast<std::size_t>(sites_.host_of(rank))];
    site.out += load.sent_far;
    site.in += load.received_far;
    site.examined += 1;
  }
  double busiest() const {
    double most = 0;
    for (int site = 0; site < sites_.count() && sites_.count() > 1; ++site) {
      const Load& load = loads_[static_cast<std::size_t>(site)];
      if (load.examined == 0) continue;
      most = std::max(most, std::max(load.out, load.in) / load.examined * sites_.size_of(site));
    }
    return most;
  }

 private:
  struct Load {
    double out = 0;
    double in = 0;
    double examined = 0;
  };
  const Hosts& sites_;
  std::vector<Load> loads_;
};

// Adds up everything that is moved and computed.
class CostEstimator {
 public:
  CostEstimator(const Request& request, const Layout& layout, const MachineModel& links, const Encoding& encoding)
      : request_(request),
        links_(links),
        encoding_(encoding),
        places_(layout.hosts.empty() ? Layout(each_alone(request.world), layout.sites) : layout, request.world) {}

  CostEstimate price(int most_ranks) {
    LoadMeter meter(request_, places_, links_, encoding_);
    const int most = most_ranks == kAllRanks ? request_.world : most_ranks;
    if (hosts().count() == 1) {
      add_host(meter, sample_ranks(hosts().members(0), request_.root, most), request_.world);
      return sum_up();
    }
    for (const int host : sample_hosts(hosts(), request_.root, most == request_.world ? most * most : most)) {
      const auto& members = hosts().members(host);
      add_host(meter, members, static_cast<double>(members.size()));
    }
    return sum_up();
  }

 private:
  const Hosts& hosts() const { return places_.hosts; }
  static std::vector<int> each_alone(int world) {
    std::vector<int> hosts(static_cast<std::size_t>(world));
    std::iota(hosts.begin(), hosts.end(), 0);
    return hosts;
  }

  // Adds a host of `ranks`, of which these are examined.
  void add_host(LoadMeter& meter, const std::vector<int>& sample, double ranks) {
    const double weight = ranks / static_cast<double>(sample.size());
    double out = 0;
    double in = 0;
    double far = 0;
    double work = 0;
    for (const int rank : sample) {
      const RankLoad load = meter.measure(rank);
      out += load.sent * weight;
      in += load.received * weight;
      far += std::max(load.sent_far, load.received_far) * weight;
      sites_.add(rank, load);
      work += load.processor * weight;
      price_.processor = std::max(price_.processor, load.processor);
      largest_stream_ = std::max(largest_stream_, load.largest_stream);
      largest_slice_ = std::max(largest_slice_, load.largest_slice);
      most_at_once_ = std::max(most_at_once_, load.most_at_once);
      longest_passage_ = std::max(longest_passage_, load.longest_passage);
    }
    price_.busiest_host_bytes = std::max({price_.busiest_host_bytes, out, in});
    most_far_ = std::max(most_far_, far);
    busiest_work_ = std::max(busiest_work_, work);
    all_sent_ += out;
    all_ranks_ += ranks;
  }

  double wire_rate() const {
    const bool has_shares = links_.shares_rate > 0 && uses_shares(request_.collective, request_.algorithm);
    return (has_shares ? links_.shares_rate : links_.wire_rate) * links_.wire_efficiency;
  }
  double wire_seconds(double bytes) const { return seconds(std::max(0.0, bytes - links_.burst_bytes), wire_rate()); }
  // A window passes in a round trip.
  double window_seconds() const {
    return is_distant() ? most_far_ / static_cast<double>(links_.window_bytes) * 2 * links_.wire.latency : 0;
  }
  bool is_distant() const { return links_.window_bytes > 0; }
  // How much longer a full line takes for many streams at once than for one.
  double crowding() const {
    if (!is_distant()) return 1;
    return 1 + kCrowding * std::max(0.0, most_at_once_ - 1) * kLeastOnTheWay / static_cast<double>(links_.window_bytes);
  }
  // Chunks without owners go round by round: each has as many slices as the plan has lanes.
  double rounds() const {
    const bool has_lanes = entry_of(request_.algorithm).chunk_count == lanes_of_all_reduce;
    if (!is_distant() || !has_lanes || request_.collective != Collective::all_reduce) return 1;
    const auto slices = static_cast<double>(slice_count(request_.count, request_.slice_elements));
    return std::max(1.0, std::ceil(slices / chunk_count(request_)));
  }

  // Between distant ranks, whose windows last for a round trip, only `least` of the latencies and what exceeds the time
  // of the bytes cost time. Not with several sites: the lines that they share are idle while a rank waits.
  void hide_latency(double least) {
    const bool has_sites = places_.sites.count() > 1 && places_.sites.count() < hosts().count();
    if (!is_distant() || has_sites || !entry_of(request_.algorithm).hides_latency) return;
    price_.first = std::clamp(price_.first - price_.wire, std::min(least, price_.first), price_.first);
  }

  CostEstimate sum_up() {
    const HopCosts hop{links_.wire.latency, links_.local.latency, links_.near_latency};
    const CriticalPath path = critical_path(request_, places_, hop);
    const int frames = path.wire_hops + path.near_hops;
    const double slice = largest_slice_ * encoding_.encoded_bytes / encoding_.element_bytes;
    const bool crosses = hosts().count() > 1;
    price_.busiest_site_bytes = sites_.busiest();
    price_.mean_sent_bytes = all_sent_ / all_ranks_;
    price_.start =
        largest_stream_ > encoding_.eager_bytes && !is_distant() ? (crosses ? links_.wire : links_.local).latency : 0;
    price_.first = rounds() * (path.wire_hops * hop.wire + path.local_hops * hop.local + path.near_hops * hop.near);
    price_.wire = std::max({crowding() * wire_seconds(price_.busiest_host_bytes), window_seconds(),
                            wire_seconds(frames * slice), wire_seconds(longest_passage_),
                            seconds(price_.busiest_site_bytes, links_.site_rate * links_.wire_efficiency)});
    price_.wire += std::max(0.0, most_at_once_ - 1) * seconds(slice, wire_rate());
    hide_latency(2 * hop.wire);
    const double shared = busiest_work_ * std::min(links_.hosts_per_machine, hosts().count());
    if (links_.cores > 0) price_.processor = std::max(price_.processor, shared / links_.cores);
    const double on_path = 2 * (frames * links_.wire.frame_seconds + path.local_hops * links_.local.frame_seconds);
    price_.processor = std::max(0.0, price_.processor - on_path);
    price_.seconds = price_.start + price_.first + std::max(price_.wire, price_.processor) +
                     kNotHidden * std::min(price_.wire, price_.processor);
    return price_;
  }

  const Request& request_;
  const MachineModel& links_;
  const Encoding& encoding_;
  const Places places_;
  SiteLoads sites_{places_.sites};
  CostEstimate price_;
  double most_far_ = 0;  // bytes of a host
  double busiest_work_ = 0;
  double all_sent_ = 0;
  double all_ranks_ = 0;
  double largest_stream_ = 0;
  double largest_slice_ = 0;
  double most_at_once_ = 0;
  double longest_passage_ = 0;
};

}  // namespace

MachineModel links_of(const Profile& profile, std::string_view codec) {
  const CodecSpeed speed = profile.speed_of(codec);
  return {.wire_rate = profile.wire_rate,
          .wire_efficiency = kTcpEfficiency,
          .wire = profile.wire,
          .near_latency = profile.wire.latency,
          .site_rate = profile.site_rate,
          .local = profile.shm,
          .inside = profile.inside,
          .copy_rate = profile.copy_rate,
          .add_rate = profile.add_rate,
          .encode_rate = speed.encode_rate,
          .decode_rate = speed.decode_rate};
}

std::uint64_t window_of(double wire_rate, double round_trip, std::uint64_t most) {
  constexpr double kLeast = 64 << 10;
  constexpr double kOwnDelay = 5e-3;  // of a rank that has other work, until it answers
  if (round_trip < kDistantRoundTrip) return 0;
  const double on_the_way = wire_rate * (round_trip + kOwnDelay);
  return static_cast<std::uint64_t>(std::clamp(on_the_way, kLeast, static_cast<double>(most)));
}

CostEstimate price(const Request& request, const Layout& layout, const MachineModel& links, const Encoding& encoding,
                   int most_ranks) {
  return CostEstimator(request, layout, links, encoding).price(most_ranks);
}

}  // namespace qccl::plan
