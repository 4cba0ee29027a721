#include "tools/perf/perf_bound.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/perf/perf_inputs.h"

namespace qccl::tools {
namespace {

constexpr std::uint64_t kLeastGroup = 256;

plan::Request request_of(const Case& c, Algorithm algorithm) {
  plan::Request request;
  request.collective = *c.collective;
  request.algorithm = algorithm;
  request.world = c.world;
  request.root = c.root;
  request.count = c.count;
  request.slice_elements = std::max<std::uint64_t>(c.count, 1);
  return request;
}

}  // namespace

double Extremes::largest() const { return std::max(std::abs(low), std::abs(high)); }

Extremes extremes_of(std::span<const double> values) {
  Extremes extremes = {values[0], values[0]};
  double squares = 0;
  for (const double value : values) {
    squares += value * value;
    extremes.low = value < extremes.low ? value : extremes.low;
    extremes.high = value > extremes.high ? value : extremes.high;
  }
  extremes.norm = std::sqrt(squares) * (1 + 0x1p-30);
  return extremes;
}

ErrorModel::ErrorModel(const Case& c, const Effective& effective)
    : case_(c), algorithm_(plan::entry_of(effective.algorithm)), has_owners_(plan::has_owners(algorithm_)) {
  codec_ = make_codec(effective.compression).take_or_throw();
  const std::uint64_t bucket = codec_->bucket_size();
  group_elements_ = (kLeastGroup + bucket - 1) / bucket * bucket;
}

std::vector<ErrorModel::Chunk> ErrorModel::chunks(int rank) const {
  if (case_.collective == Collective::reduce_scatter) {
    return {{rank, {static_cast<std::uint64_t>(rank) * case_.count, case_.count}, {0, case_.count}}};
  }
  // With partial sums the bound is the same for every rank, and every chunk starts with a bucket.
  if (!algorithm_.adds_in_rank_order) return {{0, {0, case_.count}, {0, case_.count}}};
  plan::Request request = request_of(case_, algorithm_.algorithm);
  request.compressed = true;
  request.bucket_size = codec_->bucket_size();
  std::vector<Chunk> chunks;
  for (const Range& range : plan::chunks(request)) {
    const int owner = has_owners_ ? static_cast<int>(chunks.size()) : case_.root;
    chunks.push_back({owner, range, range});
  }
  return chunks;
}

double ErrorModel::codec_bound(const Extremes& exact, double error) const {
  const double norm = exact.norm + error * std::sqrt(static_cast<double>(group_elements_));
  return codec_->error_bound({exact.low - error, exact.high + error, norm});
}

double ErrorModel::hop_bound(const std::vector<Extremes>& inputs) const {
  Extremes sums;
  for (const Extremes& input : inputs) {
    sums.low += std::min(0.0, input.low);
    sums.high += std::max(0.0, input.high);
    sums.norm += input.norm;
  }
  double error = 0;
  for (int rank = 0; rank < case_.world; ++rank) {
    error += codec_bound(sums, error) + case_.world * 0x1p-23 * sums.largest();
    if (codec_->is_exact()) error += rounding_bound(sums.largest() + error);  // sums of 16 bits are rounded first
  }
  return error;
}

double ErrorModel::bound(int owner, const std::vector<Extremes>& inputs, const Extremes& sum) const {
  const bool own_encoded = case_.collective == Collective::all_reduce && !has_owners_;
  double e1 = algorithm_.adds_in_rank_order ? 0 : hop_bound(inputs);
  for (int rank = 0; rank < case_.world && algorithm_.adds_in_rank_order; ++rank) {
    const Extremes& input = inputs[static_cast<std::size_t>(rank)];
    if (rank != owner || own_encoded) e1 += codec_bound(input, 0);
    e1 += case_.world * 0x1p-23 * input.largest();
  }
  Extremes result = sum;
  if (case_.op == ReduceOp::avg) {
    result = {sum.low / case_.world, sum.high / case_.world, sum.norm / case_.world};
    e1 = e1 / case_.world + result.largest() * 0x1p-23;
  }
  double total = e1 + rounding_bound(result.largest() + e1);
  const bool stays = case_.collective == Collective::reduce && owner == case_.root;
  if (!algorithm_.adds_in_rank_order || !has_owners_ || stays) return total;
  total += codec_bound(result, total);
  return total + rounding_bound(result.largest() + total);
}

double ErrorModel::rounding_bound(double magnitude) const {
  const bool narrow = element_bytes(case_.type) == 2;
  return narrow ? std::ldexp(magnitude, -precision_bits(case_.type)) : 0;
}

double ErrorModel::moving_bound(const Extremes& input) const {
  const double error = codec_bound(input, 0);
  return error + rounding_bound(input.largest() + error);
}

std::uint64_t uncompressed_bytes(const Case& c, Algorithm algorithm, int rank) {
  std::uint64_t elements = 0;
  for (const plan::Lane& lane : plan::schedule_of(request_of(c, algorithm), rank).lanes) {
    for (const plan::Step& step : lane.steps) {
      if (plan::sends(step.kind)) elements += lane.count * step.peers.size();
    }
  }
  return elements * element_bytes(c.type);
}

}  // namespace qccl::tools
