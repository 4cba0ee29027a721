#include "bootstrap/door/waiting_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "base/log.h"
#include "bootstrap/store/store_protocol.h"
#include "bootstrap/store/store_service.h"

namespace qccl::bootstrap {
namespace {

// The server may not have had a turn since the notes of the round before.
constexpr std::size_t kMostNotes = 4;

}  // namespace

WaitingRoom::WaitingRoom(const std::string& job) : prefix_(wire_key(key_prefix(door_name(job), 0))) {}

void WaitingRoom::call() {
  const std::lock_guard lock(mutex_);
  for (Guest& guest : std::views::values(guests_)) {
    guest.is_awaited = guest.stage == Stage::waits;
    if (!guest.is_awaited) continue;
    note(guest, "T/C/call", "");
    guest.stage = Stage::called;
  }
}

std::vector<WaitingRoom::Answer> WaitingRoom::await_answers(TimePoint deadline) {
  await(deadline, [&] {
    return std::ranges::none_of(std::views::values(guests_),
                                [](const Guest& guest) { return guest.is_awaited && guest.stage == Stage::called; });
  });
  const std::lock_guard lock(mutex_);
  std::vector<Answer> here;
  for (const auto& [ticket, guest] : guests_) {
    if (guest.stage == Stage::here) here.push_back({ticket, guest.record});
  }
  return here;
}

void WaitingRoom::seat(std::int64_t ticket, std::string seat) {
  const std::lock_guard lock(mutex_);
  Guest* const guest = find(ticket);
  if (guest == nullptr) return;
  note(*guest, "T/C/seat", std::move(seat));
  guest->stage = Stage::seated;
}

void WaitingRoom::admit(std::int64_t ticket) {
  const std::lock_guard lock(mutex_);
  Guest* const guest = find(ticket);
  if (guest == nullptr) return;
  note(*guest, "T/C/in", "1");
  guest->stage = Stage::in;
}

void WaitingRoom::send_back(std::int64_t ticket) {
  const std::lock_guard lock(mutex_);
  Guest* const guest = find(ticket);
  if (guest == nullptr || guest->stage == Stage::in) return;
  guest->stage == Stage::seated ? note(*guest, "T/C/in", "") : note(*guest, "T/C/seat", "");
  guest->stage = Stage::waits;
  ++guest->round;
}

bool WaitingRoom::has(std::int64_t ticket) const {
  const std::lock_guard lock(mutex_);
  return guests_.contains(ticket);
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

void WaitingRoom::await_uncalled(TimePoint deadline) const {
  await(deadline, [&] {
    return std::ranges::any_of(std::views::values(guests_),
                               [](const Guest& guest) { return guest.stage == Stage::waits && guest.round == 1; });
  });
}

WaitingRoom::Guest* WaitingRoom::find(std::int64_t ticket) {
  const auto found = guests_.find(ticket);
  return found == guests_.end() ? nullptr : &found->second;
}

void WaitingRoom::note(Guest& guest, Pattern pattern, std::string value) {
  guest.notes.push_back({pattern, guest.round, std::move(value)});
}

// A note for which there is no memory waits for the next turn.
void WaitingRoom::take_turn(StoreState& state) {
  const std::lock_guard lock(mutex_);
  for (auto& [ticket, guest] : guests_) {
    for (; !guest.notes.empty(); guest.notes.erase(guest.notes.begin())) {
      const Note& next = guest.notes.front();
      const Status told = state.set(prefix_ + name_of(next.pattern.row(), {ticket, next.round}), next.value);
      if (!told.ok()) log(LogLevel::error, "a newcomer at the door waits in vain: " + told.error().message);
    }
  }
}

std::optional<ParsedKey> WaitingRoom::parse(std::string_view key) const {
  return key.starts_with(prefix_) ? parse_key(Place::door, key.substr(prefix_.size())) : std::nullopt;
}

bool WaitingRoom::is_time(Client client, const ParsedKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto ticket = tickets_.find(client);
  if (key.row->when == When::without_ticket) return ticket == tickets_.end();
  if (ticket == tickets_.end() || ticket->second != key.numbers[0]) return false;
  const Guest& guest = guests_.at(ticket->second);
  return guest.stage >= Stage::called && key.numbers[1] == guest.round;
}

bool WaitingRoom::may_read(Client client, std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto ticket = tickets_.find(client);
  return ticket != tickets_.end() && key.starts_with(guests_.at(ticket->second).prefix);
}

void WaitingRoom::has_added(Client client, std::string_view /*key*/, std::int64_t sum) {
  Guest guest{.prefix = fmt::format("{}{}/", prefix_, sum)};
  guest.notes.reserve(kMostNotes);
  const std::lock_guard lock(mutex_);
  tickets_[client] = sum;
  guests_.emplace(sum, std::move(guest));
  changed_.notify_all();
}

void WaitingRoom::has_set(Client client, std::string_view name, StoreState& state) {
  const std::lock_guard lock(mutex_);
  Guest& guest = guests_.at(tickets_.at(client));
  guest.record = *state.get(std::string(name));
  state.erase(fmt::format("{}{}/", guest.prefix, guest.round - 1));
  guest.stage = Stage::here;
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
