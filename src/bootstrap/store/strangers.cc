#include "bootstrap/store/strangers.h"

#include <algorithm>

#include "os/net/socket.h"

namespace qccl::bootstrap {

void Strangers::add(Id id, const std::string& address, TimePoint now) {
  const TimePoint deadline = saturating_add(now, limit_);
  const std::string network = os::network_of(address);
  entries_[id] = {network, deadline};
  by_network_[network].insert(id);
  by_deadline_.emplace(deadline, id);
}

void Strangers::forget(Id id) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  by_deadline_.erase({found->second.deadline, id});
  if (const auto crowd = by_network_.find(found->second.network); crowd != by_network_.end()) {
    crowd->second.erase(id);
    if (crowd->second.empty()) by_network_.erase(crowd);
  }
  entries_.erase(found);
}

void Strangers::extend(Id id, TimePoint now) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  auto node = by_deadline_.extract({found->second.deadline, id});
  found->second.deadline = saturating_add(now, limit_);
  node.value() = {found->second.deadline, id};
  by_deadline_.insert(std::move(node));
}

std::optional<Strangers::Id> Strangers::to_displace() const {
  const auto crowd_size = [](const auto& entry) { return entry.second.size(); };
  const auto crowd = std::ranges::max_element(by_network_, {}, crowd_size);
  if (crowd == by_network_.end()) return std::nullopt;
  return *crowd->second.begin();
}

std::optional<Strangers::Id> Strangers::overdue(TimePoint now) const {
  if (by_deadline_.empty() || by_deadline_.begin()->first > now) return std::nullopt;
  return by_deadline_.begin()->second;
}

}  // namespace qccl::bootstrap
