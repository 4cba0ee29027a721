// The subject of `qccl plan show` and `simulate`: a job on hosts with links, and its call.
#pragma once

#include <fmt/format.h>
#include <qccl/qccl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/codec.h"
#include "plan/cost/cost.h"
#include "plan/plan.h"
#include "tools/command_line.h"

namespace qccl::tools {

// One line on a terminal that shows the progress; prints nothing if standard error is not a terminal.
class ProgressLine {
 public:
  void show(const std::string& text) const {
    if (is_shown_) fmt::print(stderr, "\r{}\033[K", text);
  }
  void clear() const { show(""); }

 private:
  const bool is_shown_ = ::isatty(STDERR_FILENO) == 1;
};

struct PlanLayout {
  int world = 0;
  std::string hosts_flag;  // "2x4", "64", or empty: a host for each rank
  std::vector<int> hosts;  // of each rank
  int sites = 1;           // of equally many hosts
  std::string profile_file;
  plan::Profile profile = plan::default_profile();
  plan::MachineModel links;  // the profile's, with the speeds that flags give
  // Those speeds, and where they belong.
  std::vector<std::pair<double& (*)(plan::MachineModel&), double>> given;
  double line_rate = 0;  // of a host that is not slow; links.wire_rate is that of the slowest
  std::vector<std::string> slow_host_flags;
  std::vector<std::pair<int, double>> slow_hosts;  // (host, factor)
  bool has_equal_shares = false;                   // of owners, although hosts are slow
  std::vector<int> shares;                         // of each rank (plan::Request::shares)
  int cores = 0;                                   // of a machine, which its ranks share; 0: each rank has its own
  int hosts_per_machine = 1;
  std::string compression_flag = "none";
  Compression compression;
  std::shared_ptr<const Codec> codec;

  int host_count() const { return hosts.empty() ? 0 : hosts.back() + 1; }
  // By rank; empty if there is one site.
  std::vector<int> sites_of_ranks() const;
  plan::Layout places() const { return {hosts, sites_of_ranks()}; }
  bool has_site_rate() const { return sites > 1 && links.site_rate > 0; }
};

// --world, --hosts, --sites, --profile, --rate, --latency, --near-latency, --site-rate, --burst, --local-rate,
// --inside-rate, --local-latency, --slow-host, --equal-shares, --cores, --hosts-per-machine, --compression.
void add_layout_flags(CLI::App& app, PlanLayout& layout);
// Throws ValueError.
[[noreturn]] void refuse(const std::string& text);

// Fills in the fields that follow from the flags; refuses a wrong combination, and a compression that the collective
// does not support.
void complete(PlanLayout& layout, Collective collective);
// Refuses an algorithm that the collective does not have.
void check_algorithm(Collective collective, std::optional<Algorithm> algorithm);

// The request that the engine makes of a call of `bytes` of float32. If ranks have pieces, `bytes`
// is the size of all pieces together.
plan::Request request_of(const PlanLayout& layout, Collective collective, Algorithm algorithm, std::uint64_t bytes);
// What the choice of the call's algorithm depends on.
plan::SelectionKey selection_key(const PlanLayout& layout, Collective collective, std::uint64_t bytes);

// "8 ranks on 2 hosts, 10 Gbit/s and 50 us between them"
std::string describe(const PlanLayout& layout);

}  // namespace qccl::tools
