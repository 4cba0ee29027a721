#include "plan/cost.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "base/digest.h"

namespace qccl::plan {
namespace {

bool receives(StepKind kind) { return kind == StepKind::recv_reduce || kind == StepKind::recv_copy; }
bool sends(StepKind kind) {
  return kind == StepKind::send_input || kind == StepKind::send_sum || kind == StepKind::send_result ||
         kind == StepKind::forward;
}

// A moment on the way of a slice: what of it was latency, and what transmission.
struct Moment {
  double latency = 0;
  double transmission = 0;
  double total() const { return latency + transmission; }
};

Moment later(const Moment& a, const Moment& b) { return a.total() < b.total() ? b : a; }

class Pricing {
 public:
  Pricing(const Request& request, const std::vector<Role>& roles, const std::vector<int>& hosts, const Links& links,
          const Encoding& encoding)
      : request_(request), roles_(roles), links_(links), encoding_(encoding), loads_(roles.size()) {
    for (std::size_t rank = 0; rank < roles.size(); ++rank) {
      hosts_.push_back(hosts.empty() ? static_cast<int>(rank) : hosts[rank]);
      runs_.emplace_back(roles[rank].lanes.size());
    }
  }

  Price price() {
    walk_first_slices();
    for (std::size_t rank = 0; rank < roles_.size(); ++rank) add_loads(static_cast<int>(rank));
    return sum_up();
  }

 private:
  // ---- the longest way of one slice

  struct Run {
    std::size_t step = 0;
    Moment now;
    bool ended = false;
  };
  struct LaneId {
    int rank;
    int lane;
  };

  static std::uint64_t stream(int from, int to, std::uint16_t phase, std::uint32_t chunk) {
    return digest(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint32_t>(to),
                  static_cast<std::uint64_t>(phase) << 32 | chunk);
  }
  bool is_local(int a, int b) const { return hosts_[at(a)] == hosts_[at(b)]; }
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  double payload(double elements, const Step& step) const {
    return elements * (step.raw ? encoding_.element_bytes : encoding_.encoded_bytes);
  }
  double slice_elements(const Lane& lane) const {
    return static_cast<double>(std::min<std::uint64_t>(lane.count, request_.slice_elements));
  }
  double slices(const Lane& lane) const {
    return lane.count == 0 ? 1 : static_cast<double>(slice_count(lane.count, request_.slice_elements));
  }
  double wire_seconds(double bytes) const { return bytes / (links_.wire_rate * links_.wire_efficiency); }

  void walk_first_slices() {
    std::vector<LaneId> ready;
    for (std::size_t rank = 0; rank < roles_.size(); ++rank) {
      for (std::size_t lane = 0; lane < roles_[rank].lanes.size(); ++lane) {
        ready.push_back({static_cast<int>(rank), static_cast<int>(lane)});
      }
    }
    std::reverse(ready.begin(), ready.end());
    while (!ready.empty()) {
      const LaneId next = ready.back();
      ready.pop_back();
      advance(next, ready);
    }
  }

  void advance(LaneId id, std::vector<LaneId>& ready) {
    const Lane& lane = roles_[at(id.rank)].lanes[at(id.lane)];
    Run& run = runs_[at(id.rank)][at(id.lane)];
    if (lane.after >= 0 && run.step == 0) {
      const Run& before = runs_[at(id.rank)][at(lane.after)];
      if (!before.ended) return after_[{id.rank, lane.after}].push_back(id);
      run.now = before.now;
    }
    for (; run.step < lane.steps.size(); ++run.step) {
      const Step& step = lane.steps[run.step];
      if (receives(step.kind) && !receive(id, lane, step, run)) return;
      if (sends(step.kind)) send(id, lane, step, run, ready);
    }
    run.ended = true;
    longest_ = later(longest_, run.now);
    // Who comes after waits for all slices.
    run.now.transmission += (slices(lane) - 1) * wire_seconds(slice_elements(lane) * encoding_.encoded_bytes);
    for (const LaneId& waiting : after_[{id.rank, id.lane}]) ready.push_back(waiting);
  }

  bool receive(LaneId id, const Lane& lane, const Step& step, Run& run) {
    const std::uint64_t key = stream(step.peers[0], id.rank, step.phase, lane.chunk);
    const auto sent = sent_.find(key);
    if (sent == sent_.end()) {
      waiting_.emplace(key, id);
      return false;
    }
    run.now = later(run.now, sent->second);
    return true;
  }

  void send(LaneId id, const Lane& lane, const Step& step, Run& run, std::vector<LaneId>& ready) {
    for (const int peer : step.peers) {
      const double bytes = payload(slice_elements(lane), step) + encoding_.frame_bytes;
      Moment arrival = run.now;
      const bool local = is_local(id.rank, peer);
      arrival.latency += (local ? links_.local_latency : links_.wire_latency) + links_.frame_seconds;
      arrival.transmission += local ? bytes / links_.local_rate : wire_seconds(bytes);
      needs_grant_ |= payload(static_cast<double>(lane.count), step) > encoding_.eager_bytes;
      const std::uint64_t key = stream(id.rank, peer, step.phase, lane.chunk);
      sent_.emplace(key, arrival);
      const auto waiting = waiting_.find(key);
      if (waiting == waiting_.end()) continue;
      ready.push_back(waiting->second);
      waiting_.erase(waiting);
    }
  }

  // ---- everything that is to be moved and computed

  struct Load {
    double sent = 0;
    double received = 0;
    double local = 0;
    double frames = 0;
    double compute = 0;
  };

  void add_loads(int rank) {
    for (const Lane& lane : roles_[at(rank)].lanes) {
      for (const Step& step : lane.steps) add_load(rank, lane, step);
    }
  }

  void add_load(int rank, const Lane& lane, const Step& step) {
    Load& own = loads_[at(rank)];
    const auto elements = static_cast<double>(lane.count);
    const double bytes = payload(elements, step) + encoding_.frame_bytes * slices(lane);
    const double input = elements * encoding_.element_bytes;
    const bool coded = request_.compressed && !step.raw;
    for (const int peer : step.peers) {
      own.frames += slices(lane);
      if (is_local(rank, peer)) {
        own.local += bytes;
      } else {
        (receives(step.kind) ? own.received : own.sent) += bytes;
      }
    }
    if (step.kind == StepKind::recv_reduce || step.kind == StepKind::local_reduce) {
      own.compute += input / links_.compute_rate;
    }
    const bool makes_code = sends(step.kind) && step.kind != StepKind::forward;
    if (coded && (makes_code || receives(step.kind) || step.quantized)) own.compute += input / links_.encode_rate;
  }

  Price sum_up() const {
    Price price;
    std::map<int, std::pair<double, double>> of_host;  // out, in
    for (std::size_t rank = 0; rank < loads_.size(); ++rank) {
      const Load& load = loads_[rank];
      auto& [out, in] = of_host[hosts_[rank]];
      out += load.sent;
      in += load.received;
      price.most_sent_bytes = std::max(price.most_sent_bytes, load.sent);
      price.mean_sent_bytes += load.sent / static_cast<double>(loads_.size());
      price.local = std::max(price.local, load.local / links_.local_rate);
      price.compute = std::max(price.compute, load.compute + load.frames * links_.frame_seconds);
    }
    for (const auto& [host, load] : of_host) {
      price.busiest_host_bytes = std::max({price.busiest_host_bytes, load.first, load.second});
    }
    price.start = needs_grant_ ? links_.wire_latency : 0;
    price.first = longest_.latency;
    price.wire = std::max(wire_seconds(price.busiest_host_bytes), longest_.transmission);
    price.seconds = price.start + price.first + std::max({price.wire, price.local, price.compute});
    return price;
  }

  const Request& request_;
  const std::vector<Role>& roles_;
  const Links& links_;
  const Encoding& encoding_;
  std::vector<int> hosts_;
  std::vector<std::vector<Run>> runs_;
  std::unordered_map<std::uint64_t, Moment> sent_;
  std::unordered_map<std::uint64_t, LaneId> waiting_;
  std::map<std::pair<int, int>, std::vector<LaneId>> after_;
  std::vector<Load> loads_;
  Moment longest_;
  bool needs_grant_ = false;
};

}  // namespace

Price price(const Request& request, const std::vector<Role>& roles, const std::vector<int>& hosts, const Links& links,
            const Encoding& encoding) {
  return Pricing(request, roles, hosts, links, encoding).price();
}

}  // namespace qccl::plan
