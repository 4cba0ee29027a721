#include "bootstrap/door/waiting_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "bootstrap/meeting/job_keys.h"
#include "bootstrap/store/store_service.h"

namespace qccl::bootstrap {

WaitingRoom::WaitingRoom(const std::string& job, std::size_t most_bytes)
    : prefix_(wire_prefix(door_name(job), 0)), most_bytes_(most_bytes) {}

std::vector<std::int64_t> WaitingRoom::tickets() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> waiting;
  for (const auto& [ticket, guest] : guests_) {
    if (guest.waits) waiting.push_back(ticket);
  }
  return waiting;
}

bool WaitingRoom::has(std::int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  return guests_.contains(ticket);
}

void WaitingRoom::call(std::int64_t ticket, int round) {
  const std::lock_guard lock(mutex_);
  if (const auto found = guests_.find(ticket); found != guests_.end()) found->second.called = round;
}

bool WaitingRoom::has_answered(std::int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  const auto found = guests_.find(ticket);
  return found != guests_.end() && found->second.called > 0 && found->second.answered == found->second.called;
}

template <class Done>
void WaitingRoom::await(TimePoint deadline, const Done& done) const {
  std::unique_lock lock(mutex_);
  while (!done()) {
    const Nanoseconds left = deadline - clock_.now();
    if (left <= Nanoseconds::zero()) return;
    changed_.wait_for(lock, std::min<Nanoseconds>(left, std::chrono::hours(1)));
  }
}

void WaitingRoom::await_answers(const std::vector<std::int64_t>& tickets, TimePoint deadline) const {
  await(deadline, [&] {
    return std::ranges::all_of(tickets, [&](std::int64_t ticket) {
      const auto found = guests_.find(ticket);
      return found == guests_.end() || found->second.answered == found->second.called;
    });
  });
}

void WaitingRoom::await_uncalled(TimePoint deadline) const {
  await(deadline, [&] {
    return std::ranges::any_of(guests_, [](const auto& each) { return each.second.waits && each.second.called == 0; });
  });
}

std::string WaitingRoom::key_of(const Guest& guest, int round, std::string_view name) const {
  return fmt::format("{}{}/{}", guest.prefix, round, name);
}

const WaitingRoom::Guest* WaitingRoom::find(Client client) const {
  const auto ticket = tickets_.find(client);
  const auto guest = ticket == tickets_.end() ? guests_.end() : guests_.find(ticket->second);
  return guest == guests_.end() ? nullptr : &guest->second;
}

bool WaitingRoom::may_read(Client client, std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const Guest* const guest = find(client);
  return guest != nullptr && key.starts_with(guest->prefix);
}

bool WaitingRoom::may_add(Client client, std::string_view key, std::int64_t delta) const {
  const std::lock_guard lock(mutex_);
  return delta == 0 || (delta == 1 && key == prefix_ + "tickets" && !tickets_.contains(client));
}

bool WaitingRoom::may_set(Client client, std::string_view key, std::string_view value) const {
  const std::lock_guard lock(mutex_);
  const Guest* const guest = find(client);
  if (guest == nullptr) return false;
  if (key == guest->prefix + "process") return value.size() <= kMaxProcessBytes;
  return value.empty() && guest->called > 0 && key == key_of(*guest, guest->called, "here");
}

// The member may write for a newcomer that has just ended.
bool WaitingRoom::is_of_use(std::string_view key) const {
  if (!key.starts_with(prefix_)) return true;
  key.remove_prefix(prefix_.size());
  const auto ticket = parse_number<std::int64_t>(key.substr(0, key.find('/')));
  return !ticket || has(*ticket);
}

void WaitingRoom::has_added(Client client, std::string_view /*key*/, std::int64_t sum) {
  Guest guest{.prefix = fmt::format("{}{}/", prefix_, sum)};
  const std::lock_guard lock(mutex_);
  tickets_[client] = sum;
  guests_.emplace(sum, std::move(guest));
}

void WaitingRoom::has_set(Client client, std::string_view key, StoreState& state) {
  const std::lock_guard lock(mutex_);
  Guest& guest = guests_.at(tickets_.at(client));
  if (key == guest.prefix + "process") {
    guest.waits = true;
  } else {
    state.erase(key_of(guest, guest.called - 1, ""));
    guest.answered = guest.called;
  }
  changed_.notify_all();
}

void WaitingRoom::has_ended(Client client, StoreState& state) {
  const std::lock_guard lock(mutex_);
  const auto ticket = tickets_.find(client);
  if (ticket == tickets_.end()) return;
  if (const auto guest = guests_.find(ticket->second); guest != guests_.end()) {
    state.erase(guest->second.prefix);
    guests_.erase(guest);
  }
  tickets_.erase(ticket);
  changed_.notify_all();
}

bool WaitingRoom::may_stay(Client client) const {
  const std::lock_guard lock(mutex_);
  return tickets_.contains(client);
}

}  // namespace qccl::bootstrap
