// The subject of `qccl plan show` and `simulate`: a job on hosts with links, and its call.
#pragma once

#include <qccl/qccl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "plan/cost/choice.h"
#include "plan/cost/cost.h"
#include "plan/cost/profile.h"
#include "plan/plan.h"
#include "tools/command_line.h"

namespace qccl::tools {

struct PlanLayout {
  static constexpr double kUnsaid = -1;

  int world = 0;
  std::string hosts_word;  // "2x4", "64", or empty: a host for each rank
  std::vector<int> hosts;  // of each rank
  std::string profile_file;
  plan::Profile profile = plan::default_profile();
  // complete() fills in the profile's values for those that were not given.
  double rate = kUnsaid;     // bytes per second, out of a host and into it
  double latency = kUnsaid;  // seconds
  double local_rate = kUnsaid;
  double local_latency = kUnsaid;
  double burst = 0;  // bytes
  int cores = 0;     // of a machine, which its ranks share; 0: each rank has its own
  int hosts_per_machine = 1;
  std::string compression_word = "none";
  Compression compression;
  std::shared_ptr<const Codec> codec;

  int host_count() const { return hosts.empty() ? 0 : hosts.back() + 1; }
  plan::MachineModel links() const;
};

// --world, --hosts, --profile, --rate, --latency, --burst, --local-rate, --local-latency, --cores, --hosts-per-machine,
// --compression.
void add_layout_flags(CLI::App& app, PlanLayout& layout);
// Fills in the fields that follow from the flags; returns what is wrong with their combination, if anything.
std::optional<std::string> complete(PlanLayout& layout);

// The request that the engine makes of a call of `bytes` of float32. If ranks have pieces, `bytes`
// is the size of all pieces together.
plan::Request request_of(const PlanLayout& layout, Collective collective, Algorithm algorithm, std::uint64_t bytes);
// The question that the choice of the call's algorithm answers.
plan::SelectionKey question_of(const PlanLayout& layout, Collective collective, std::uint64_t bytes);
// If the layout asks for compression that the collective does not support: the reason.
std::optional<std::string> refusal(const PlanLayout& layout, Collective collective);

// "8 ranks on 2 hosts, 10 Gbit/s and 50 us between them"
std::string describe(const PlanLayout& layout);

}  // namespace qccl::tools
