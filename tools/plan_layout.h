// What `qccl plan show` and `simulate` are asked about: a job on hosts with links, and its call.
#pragma once

#include <qccl/qccl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/codec.h"
#include "command_line.h"
#include "plan/cost.h"
#include "plan/plan.h"

namespace qccl::tools {

struct PlanLayout {
  int world = 0;
  std::string hosts_word;  // "2x4", "64", or empty: a host for each rank
  std::vector<int> hosts;  // of each rank
  double rate = 1.25e9;    // bytes a second, out of a host and into it
  double latency = 50e-6;  // seconds
  double local_rate = 5e9;
  double local_latency = 2e-6;
  std::string compression_word = "none";
  Compression compression;
  std::shared_ptr<const Codec> codec;

  int host_count() const { return hosts.empty() ? 0 : hosts.back() + 1; }
  plan::Links links() const;
  plan::Encoding encoding() const;
};

// --world, --hosts, --rate, --latency, --local-rate, --local-latency, --compression.
void add_layout_flags(CLI::App& app, PlanLayout& layout);
// What is wrong with them together, if anything; fills in what follows from the words.
std::optional<std::string> complete(PlanLayout& layout);

// The request that the engine makes of a call of `bytes` (where ranks have pieces: of all together)
// of float32.
plan::Request request_of(const PlanLayout& layout, Collective collective, Algorithm algorithm, std::uint64_t bytes);
std::vector<plan::Role> roles_of(const plan::Request& request);
// Why the collective can't be compressed, if it is to be.
std::optional<std::string> refusal(const PlanLayout& layout, Collective collective);

// "8 ranks on 2 hosts, 10 Gbit/s and 50 us between them"
std::string describe(const PlanLayout& layout);

}  // namespace qccl::tools
