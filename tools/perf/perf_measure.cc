#include "tools/perf/perf_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "codec/registry.h"
#include "tools/command_line.h"
#include "tools/perf/perf_bound.h"

namespace qccl::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t Traffic::*kCounters[] = {&Traffic::payload_bytes_sent, &Traffic::header_bytes_sent,
                                                 &Traffic::shared_bytes_sent};

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Combines the ranks' values into one, as selected by -a.
double combine_ranks(const std::vector<double>& values, int average) {
  switch (average) {
    case 0: return values[0];
    case 2: return *std::min_element(values.begin(), values.end());
    case 3: return *std::max_element(values.begin(), values.end());
    default: return mean(values);
  }
}

// The number of in-place iterations that stay in the type's range: each multiplies sums by the world size, with
// premul_sum by up to twice that.
int iterations_in_range(const Case& c) {
  const bool sums = c.op == ReduceOp::sum || c.op == ReduceOp::premul_sum;
  const bool grows = c.in_place && c.is_reduction() && sums && is_floating(c.type) && c.world > 1;
  if (!grows) return std::numeric_limits<int>::max();
  // Inputs are at most 2^11 (half), 2^24 (float), 2^30 (double).
  const double room = c.type == DataType::float16 ? 4 : c.type == DataType::float64 ? 900 : 96;
  return std::max(1, static_cast<int>(room / std::log2(c.op == ReduceOp::premul_sum ? 2 * c.world : c.world)));
}

}  // namespace

Bench::Bench(Communicator communicator, std::unique_ptr<BufferMemory> memory, const PerfOptions& options,
             std::uint64_t largest_bytes)
    : memory_(std::move(memory)), communicator_(std::move(communicator)), options_(options) {
  const auto world = static_cast<std::uint64_t>(communicator_.size());
  const bool parts_in = has_input_parts(options.collective);
  const bool parts_out = has_output_parts(options.collective);
  input_ = memory_->allocate(parts_out && !parts_in ? largest_bytes / world : largest_bytes);
  output_ = memory_->allocate(parts_in && !parts_out ? largest_bytes / world : largest_bytes);
}

Effective Bench::effective(const Case& c) const {
  if (c.collective == kSendrecv) return {};
  const CallOptions options = call_options(c, options_.algorithm, communicator_.rank(), memory_->stream());
  const CallChoice choice =
      communicator_.choice({.collective = *c.collective, .count = c.count, .type = c.type, .options = options});
  return {choice.compression, choice.algorithm};
}

Inputs Bench::prepare(const Case& c, const Effective& effective) {
  const int rank = communicator_.rank();
  const Inputs inputs(c, effective.is_lossy(), ++salt_);
  const Placement placement = placement_on_rank(c);
  constexpr int kPoison = 0xA5;
  const std::uint64_t output_bytes = c.output_count() * element_bytes(c.type);
  std::memset(memory_->contents(placement.output, output_bytes), kPoison, output_bytes);
  memory_->put(placement.output, output_bytes);
  if (!c.has_input(rank)) return inputs;
  const std::uint64_t input_bytes = c.input_count() * element_bytes(c.type);
  inputs.write(rank, 0, c.input_count(), memory_->contents(placement.input, input_bytes));
  memory_->put(placement.input, input_bytes);
  return inputs;
}

void Bench::run_untimed(const Case& c, int calls, bool with_barriers) {
  prepare(c, effective(c));
  const Placement placement = placement_on_rank(c);
  for (int i = 0; i < calls; ++i) {
    if (with_barriers) communicator_.barrier();
    call(c, placement);
  }
}

Bench::Timing Bench::time_iterations(const Case& c, const Effective& effective) {
  Timing timing;
  const Placement placement = placement_on_rank(c);
  const int refresh = iterations_in_range(c);
  const bool synchronised = options_.blocking == 1 || options_.blocking == 3;
  for (int i = 0; i < options_.iterations;) {
    // Only the collective and the clock run between the first and the last call of a stretch.
    const int end = synchronised ? i + 1 : std::min(options_.iterations, i + refresh);
    if (i % refresh == 0) prepare(c, effective);
    communicator_.barrier();
    const Traffic before = communicator_.traffic();
    auto start = Clock::now();
    for (; i < end; ++i) {
      call(c, placement);
      const auto now = Clock::now();
      timing.microseconds.push_back(std::chrono::duration<double, std::micro>(now - start).count());
      start = now;
    }
    const Traffic after = communicator_.traffic();
    for (const auto counter : kCounters) timing.sent.*counter += after.*counter - before.*counter;
  }
  return timing;
}

void Bench::evaluate_times(const Case& c, const std::vector<double>& mine, Measurement& m) {
  std::vector<double> all(mine.size() * static_cast<std::size_t>(c.world));  // the ranks' times, one after another
  communicator_.all_gather(mine, all);
  std::vector<double> times;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    std::vector<double> of_ranks;
    for (std::size_t at = i; at < all.size(); at += mine.size()) of_ranks.push_back(all[at]);
    times.push_back(combine_ranks(of_ranks, options_.average));
  }
  m.mean_us = mean(times);
  m.median_us = median(times);
  m.min_us = *std::min_element(times.begin(), times.end());
  m.max_us = *std::max_element(times.begin(), times.end());
  m.algbw = m.mean_us > 0 ? static_cast<double>(c.bytes()) / 1e3 / m.mean_us : 0;
  m.busbw = m.algbw * bus_factor(c);
}

void Bench::evaluate_traffic(const Case& c, const Traffic& sent, Measurement& m) {
  const double per_rank = static_cast<double>(options_.iterations) * c.world;
  for (const Traffic& traffic : gather(communicator_, sent)) {
    const std::uint64_t payload = traffic.payload_bytes_sent + traffic.shared_bytes_sent;
    m.payload_bytes += static_cast<double>(payload) / per_rank;
    m.wire_bytes += static_cast<double>(payload + traffic.header_bytes_sent) / per_rank;
  }
  if (m.payload_bytes == 0) return;
  if (!m.effective.is_lossy()) {
    m.compression_ratio = 1;
    return;
  }
  double plain = 0;
  for (int rank = 0; rank < c.world; ++rank) {
    plain += static_cast<double>(uncompressed_bytes(c, m.effective.algorithm, rank)) / c.world;
  }
  m.compression_ratio = plain / m.payload_bytes;
}

// Checks with the compression that was found to be the fastest: an automatic one might try another in between.
void Bench::check(Case c, Measurement& m) {
  const Compression asked = communicator_.compression();
  if (!is_automatic(asked)) return check_as_is(c, m);
  m.effective = effective(c);
  communicator_.set_compression(m.effective.compression);
  if (c.compression) c.compression = m.effective.compression;
  check_as_is(c, m);
  communicator_.set_compression(asked);
}

void Bench::check_as_is(const Case& c, Measurement& m) {
  m.checked = options_.check_iterations > 0;
  const int rank = communicator_.rank();
  const Placement placement = placement_on_rank(c);
  for (int i = 0; i < options_.check_iterations; ++i) {
    const Inputs inputs = prepare(c, m.effective);
    call(c, placement);
    const std::byte* const output = memory_->get(placement.output, c.output_count() * element_bytes(c.type));
    const auto results = gather(communicator_, check_output(c, m.effective, inputs, rank, output));
    for (const CheckResult& result : results) {
      m.wrong += result.wrong;
      m.largest_error = std::max(m.largest_error, result.largest_error);
      m.largest_bound = std::max(m.largest_bound, result.largest_bound);
      if (c.has_one_result()) m.same_bits &= result.digest == results[0].digest;
    }
  }
}

Measurement Bench::measure(const Case& c) {
  Measurement m;
  constexpr int kTrialCalls = 40;  // enough for an automatic compression to try all its candidates
  if (is_automatic(communicator_.compression())) run_untimed(c, kTrialCalls, true);
  m.effective = effective(c);
  const Timing timing = time_iterations(c, m.effective);
  evaluate_times(c, timing.microseconds, m);
  evaluate_traffic(c, timing.sent, m);
  check(c, m);
  return m;
}

}  // namespace qccl::tools
