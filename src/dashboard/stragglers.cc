#include "dashboard/stragglers.h"

#include <algorithm>

#include "observe/waits.h"

namespace qccl::dashboard {

void Stragglers::add(int rank, const OperationRecord& record) {
  ranks_[rank];
  if (!has_stragglers(record)) return;
  const Call call{record.group_id, record.sequence};
  const auto [found, is_new] = open_.try_emplace(call);
  if (is_new) order_.push_back(call);
  std::vector<Part>& parts = found->second;
  parts.push_back({rank, record.latency_ms()});
  if (parts.size() == static_cast<std::size_t>(record.group_size)) {
    close(parts);
    open_.erase(found);
  }
  while (open_.size() > kOpenMeetings || order_.size() > 2 * kOpenMeetings) forget_oldest();
}

void Stragglers::forget_oldest() {
  incomplete_ += open_.erase(order_.front());
  order_.pop_front();
}

void Stragglers::close(const std::vector<Part>& parts) {
  const auto [last, first] = std::ranges::minmax_element(parts, {}, &Part::ms);
  double waited = 0;
  for (const Part& part : parts) {
    ranks_[part.rank].waited_ms += part.ms - last->ms;
    waited += part.ms - last->ms;
  }
  waited /= static_cast<double>(parts.size() - 1);
  Rank& late = ranks_[last->rank];
  ++late.last_in;
  late.waited_for_ms += waited;
  ++compared_;
  recent_.push_back({last->rank, waited, first->ms});
  if (recent_.size() > kRecent) recent_.pop_front();
}

Stragglers::Recent Stragglers::recent() const {
  std::map<int, Recent> by_rank;
  double latency = 0;
  double waited = 0;
  for (const Last& each : recent_) {
    Recent& own = by_rank[each.rank];
    own.rank = each.rank;
    ++own.last_in;
    own.waited_for_ms += each.waited_ms;
    latency += each.longest_ms;
    waited += each.waited_ms;
  }
  Recent worst;
  for (const auto& [rank, own] : by_rank) {
    if (worst.rank < 0 || own.waited_for_ms > worst.waited_for_ms) worst = own;
  }
  worst.compared = recent_.size();
  worst.blame = waited > 0 ? worst.waited_for_ms / waited : 0;
  if (worst.last_in > 0) worst.waited_for_ms /= static_cast<double>(worst.last_in);
  if (!recent_.empty()) worst.latency_ms = latency / static_cast<double>(recent_.size());
  return worst;
}

}  // namespace qccl::dashboard
