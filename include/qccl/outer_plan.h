// Which H: how often ranks on a slow line can synchronise (outer.h) and still compute for most of the time, by the cost
// model. `qccl plan outer` prints the same for layouts of hosts.
//
//   const auto plan = qccl::train::plan_outer({.parameters = 10'000'000, .ranks = 4, .step_seconds = 0.4,
//                                              .rate = 50e6 / 8, .latency = 0.02});
//   std::puts(qccl::train::to_text(plan).c_str());
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "qccl/compression.h"
#include "qccl/types.h"

namespace qccl::train {

// What plan_outer() is asked for.
struct OuterPlanOptions {
  std::uint64_t parameters = 0;  // of the model
  std::uint64_t layers = 0;      // rows with more fragments are left out; 0: none are
  int ranks = 2;                 // each on a host of its own
  double step_seconds = 0;       // of a step of the inner optimizer
  double computing = 0.9;        // share of the time that is to be left for it, 0..1
  double rate = 0;               // of a host's line, out and in, bytes per second
  double latency = 0;            // from host to host, seconds
};

// For a codec and a number of fragments the smallest H, of 17 from 1 to 5000, with which ranks compute for the share
// that was asked for, and the steps in which a round is hidden: at most 10, for which training pays nothing that was
// measured (arXiv 2501.18512), and at most H / fragments. Of a round of time T a rank waits for max(0, T - delay
// steps). Not counted: the arithmetic of the outer step, and what encoding takes from the cores that compute.
struct OuterPlanRow {
  std::string compression;      // the codec, as Compression::parse() reads it
  std::uint64_t fragments = 1;  // parts that are synchronised in turn: P
  std::uint64_t every = 0;      // H; 0: even 5000 is not enough, and the next three are 0
  std::uint64_t delay = 0;      // steps in which a round is hidden
  double computing = 0;         // share of the time
  double bytes_a_step = 0;      // sent by a rank
  double round_seconds = 0;     // of a fragment
};

// The algorithm of an OuterLoop's rounds: one_shot with topk, because a choice from the ranks' sum would leave out most
// of what they have chosen; else automatic.
Algorithm round_algorithm(const Compression& compression);

// Rows for the codecs that suit deltas, each with 1, 4 and 8 fragments. Throws invalid_argument for options without a
// meaning: no parameters, ranks or rate, times that are not above 0.
std::vector<OuterPlanRow> plan_outer(const OuterPlanOptions& options);

// A table with a line for each row.
std::string to_text(std::span<const OuterPlanRow> rows);

}  // namespace qccl::train
