#include "transport/router.h"

#include <algorithm>

#include "base/log.h"

namespace qccl {

Router::Router(std::unique_ptr<os::Poller> poller, std::vector<std::unique_ptr<Endpoint>> endpoints,
               std::vector<int> endpoint_of_rank)
    : poller_(std::move(poller)), endpoints_(std::move(endpoints)) {
  endpoint_of_rank_.reserve(endpoint_of_rank.size());
  for (const int index : endpoint_of_rank) {
    QCCL_CHECK(index < static_cast<int>(endpoints_.size()));
    endpoint_of_rank_.push_back(index < 0 ? nullptr : endpoints_[static_cast<std::size_t>(index)].get());
  }
  const auto first = std::ranges::find_if(endpoint_of_rank_, [](const Endpoint* each) { return each != nullptr; });
  const auto is_first = [&](const Endpoint* each) { return each == nullptr || each == *first; };
  if (first != endpoint_of_rank_.end() && std::ranges::all_of(endpoint_of_rank_, is_first)) reaches_all_ = *first;
  for (std::size_t i = 0; i < endpoints_.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) QCCL_CHECK(endpoints_[i]->token_space() != endpoints_[j]->token_space());
  }
}

std::optional<ReceivedFrame> Router::receive() {
  for (std::size_t tried = 0; tried < endpoints_.size(); ++tried) {
    Endpoint& source = *endpoints_[next_];
    if (++next_ == endpoints_.size()) next_ = 0;
    if (auto frame = source.receive()) return frame;
  }
  return std::nullopt;
}

void Router::set_placement(PayloadPlacement* placement) {
  for (const auto& each : endpoints_) each->set_placement(placement);
}

void Router::withdraw() {
  for (const auto& each : endpoints_) each->withdraw();
}

bool Router::progress() {
  bool moved = false;
  for (const auto& each : endpoints_) moved |= each->progress();
  return moved;
}

std::optional<Transport::PeerLoss> Router::next_loss() {
  for (const auto& each : endpoints_) {
    if (auto loss = each->next_loss()) return loss;
  }
  return std::nullopt;
}

void Router::sleep(TimePoint deadline, const Clock& clock) {
  std::size_t armed = 0;
  bool may_sleep = true;
  while (may_sleep && armed < endpoints_.size()) may_sleep = endpoints_[armed++]->arm();
  if (may_sleep) {
    for (const auto& event : poller_->wait(deadline - clock.now())) {
      for (const auto& each : endpoints_) {
        if (each->token_space() == Endpoint::token_space_of(event.token)) each->ready(event);
      }
    }
  }
  while (armed > 0) endpoints_[--armed]->disarm();
}

TimePoint Router::next_send_time() const {
  TimePoint earliest = kForever;
  for (const auto& each : endpoints_) earliest = std::min(earliest, each->next_send_time());
  return earliest;
}

HostMemory Router::host_memory() {
  for (const auto& endpoint : endpoints_) {
    if (const HostMemory memory = endpoint->host_memory(); memory.heap != nullptr) return memory;
  }
  return {};
}

bool Router::flushed() const {
  return std::ranges::all_of(endpoints_, [](const auto& each) { return each->flushed(); });
}

void Router::set_close_patience(Nanoseconds patience) {
  for (const auto& each : endpoints_) each->set_close_patience(patience);
}

void Router::close() {
  for (const auto& each : endpoints_) each->close();
}

}  // namespace qccl
