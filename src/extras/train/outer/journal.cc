#include "extras/train/outer/journal.h"

namespace qccl::train {
namespace {

constexpr std::size_t kMostHistory = 10'000;

std::uint64_t bytes_sent(const Communicator& group) {
  const Traffic traffic = group.traffic();
  return traffic.payload_bytes_sent + traffic.header_bytes_sent + traffic.shared_bytes_sent;
}

double seconds_of(Nanoseconds duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void OuterJournal::leave(TimePoint now) {
  waited += now - *entered;
  entered.reset();
}

void OuterJournal::begin(const Communicator& group) { bytes_before = bytes_sent(group); }

void OuterJournal::move(const Communicator& from, const Communicator& to) {
  bytes_before = bytes_sent(to) - (bytes_sent(from) - bytes_before);
}

void OuterJournal::add(OuterRound round, const Communicator& group) {
  round.ranks = group.size();
  round.bytes = bytes_sent(group) - bytes_before;
  if (rounds.size() == kMostHistory) rounds.erase(rounds.begin());
  rounds.push_back(round);
}

void OuterJournal::end(TimePoint now, const Communicator& group) {
  OuterRound& last = rounds.back();
  last.seconds_waited = seconds_of(waited + (now - entered.value_or(now)));
  last.seconds = seconds_of(now - last_end);
  last.ended_ns = now.time_since_epoch().count();
  group.log().add(last);
  last_end = now;
  waited = {};
  entered = now;
}

}  // namespace qccl::train
