#include "dashboard/gauge_table.h"

namespace qccl::dashboard {
namespace {

// Halves the points; what is left is evenly spaced.
void thin(std::vector<GaugeRecord>& points) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points.size(); i += 2) points[kept++] = points[i];
  points.resize(kept);
}

}  // namespace

bool GaugeTable::add(int rank, const GaugeRecord& gauge) {
  if (parameters_.size() >= kMostParameters && !parameters_.contains(gauge.name)) {
    ++left_out_;
    return false;
  }
  const auto [found, is_new] = parameters_.try_emplace(gauge.name);
  Parameter& own = found->second;
  if (is_new || rank < own.rank) own = {.rank = rank, .last = {}, .history = {}};
  if (rank != own.rank) return false;
  const bool piled_up = own.piles_up();
  own.last = gauge;
  if (own.seen++ % own.stride == 0) {
    if (own.history.size() == kMostPoints) {
      thin(own.history);
      own.stride *= 2;
    }
    own.history.push_back(gauge);
    own.history.back().name.clear();
  }
  return own.piles_up() && !piled_up;
}

}  // namespace qccl::dashboard
