// The public ranks_on_this_host(): queries every rank that listens, many at once.
//
// Any process can listen under a name like a rank's. So the kernel must confirm the user in the name, and an answer
// that is too long or too late counts as none.
#include "qccl/status.h"

#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "job/status/status_server.h"
#include "observe/status_text.h"
#include "os/net/poller.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl {
namespace {

constexpr std::size_t kMaxRanks = 1024;                 // of one host
constexpr std::size_t kQueriesAtOnce = 128;             // descriptors
constexpr std::size_t kMaxAllBytes = 16 * 1024 * 1024;  // of all answers
constexpr std::size_t kReadBytes = 4096;
constexpr Nanoseconds kSlack = std::chrono::seconds(1);  // for a rank that asks the others

struct Found {
  std::string name;
  RankStatus status;
};

// The ranks of this user, and for root those of all users after them, so that other users' crowd out none.
std::vector<Found> find_ranks() {
  const std::uint32_t own = os::own_credentials().user;
  std::vector<Found> ranks;
  for (std::string& name : os::abstract_listeners(std::string(comm::kStatusPrefix))) {
    auto status = comm::parse_status_socket_name(name);
    if (status && (own == 0 || status->user == own)) ranks.push_back({std::move(name), std::move(*status)});
  }
  std::ranges::sort(ranks, {},
                    [own](const Found& rank) { return std::pair(rank.status.user != own, rank.status.user); });
  return ranks;
}

// The kernel knows best which process of which user answers under which name.
void take_answer(const std::string& text, RankStatus& status) {
  RankStatus told;
  if (!internal::decode_status(text, told).ok()) return;
  told.answered = true;
  told.process = status.process;
  told.rank = status.rank;
  told.world = status.world;
  told.user = status.user;
  told.job = status.job;
  status = std::move(told);
}

// Queries that run at the same time.
class QueryRound {
 public:
  explicit QueryRound(os::Poller& poller) : poller_(poller) {}

  // False if no process of the user in the name listens there.
  // If a stopped rank's queue of queries is full, only its process's owner can be seen.
  bool query(Found& rank) {
    RankStatus& status = rank.status;
    auto connection = os::connect_unix_abstract(rank.name);
    if (!connection && connection.error().kind == ErrorKind::peer_lost) return false;  // it has just ended
    if (!connection) return os::process_user(status.process) == status.user;
    auto owner = os::peer_credentials(*connection);
    if (!owner || owner->user != status.user) return false;
    const auto question = comm::StatusQuestion{.subject = comm::StatusQuestion::Subject::rank}.encode();
    if (os::write_some(connection->get(), question).lost()) return false;
    if (!poller_.watch(connection->get(), replies_.size())) return true;
    replies_.push_back({&status, std::move(*connection), {}});
    ++open_;
    return true;
  }

  // Reads until all have answered or `deadline` has come. Subtracts the bytes from `budget`.
  void read(TimePoint deadline, const Clock& clock, std::size_t& budget) {
    for (TimePoint now = clock.now(); open_ > 0 && now < deadline; now = clock.now()) {
      for (const auto& event : poller_.wait(deadline - now)) {
        PendingReply& reply = replies_[event.token];
        if (read_piece(reply, budget)) continue;
        reply.connection.reset();
        --open_;
      }
    }
  }

 private:
  struct PendingReply {
    RankStatus* status;
    os::Fd connection;
    std::string text;
  };

  // False at the end of an answer, or if it is too long.
  bool read_piece(PendingReply& reply, std::size_t& budget) {
    std::array<std::byte, kReadBytes> piece;
    const os::IoResult got = os::read_some(reply.connection.get(), piece);
    if (got.lost()) {
      take_answer(reply.text, *reply.status);
      return false;
    }
    if (got.bytes > budget || reply.text.size() + got.bytes > internal::kMostStatusBytes) return false;
    reply.text.append(reinterpret_cast<const char*>(piece.data()), got.bytes);
    budget -= got.bytes;
    return true;
  }

  os::Poller& poller_;
  std::vector<PendingReply> replies_;
  std::size_t open_ = 0;  // replies that have not ended
};

// The whole answer of a rank on this host, or as much as came until the deadline.
std::string ask_for_job(const RankStatus& rank, Milliseconds patience) {
  const SteadyClock clock;
  auto connection = os::connect_unix_abstract(comm::status_socket_name(rank));
  if (!connection) return {};
  auto owner = os::peer_credentials(*connection);
  if (!owner || owner->user != rank.user) return {};
  const comm::StatusQuestion question{
      .subject = comm::StatusQuestion::Subject::job,
      .patience_ms = static_cast<std::uint32_t>(std::clamp<std::int64_t>(patience.count(), 0, UINT32_MAX))};
  const TimePoint deadline = saturating_add(saturating_add(clock.now(), patience), kSlack);
  if (!os::write_exactly(*connection, question.encode(), deadline, clock).ok()) return {};
  std::string text;
  std::array<std::byte, kReadBytes> piece;
  while (text.size() < internal::kMostJobStatusBytes) {
    auto ready = os::wait_ready(*connection, os::Direction::read, deadline, clock);
    if (!ready || !*ready) return text;
    const os::IoResult got = os::read_some(connection->get(), piece);
    text.append(reinterpret_cast<const char*>(piece.data()), got.bytes);
    if (got.lost()) return text;
  }
  return text;
}

// Its ranks as one of them told, with what is known of those on this host.
std::vector<RankStatus> whole_job(std::span<const RankStatus> local, Milliseconds patience) {
  const auto asked = std::ranges::find_if(local, &RankStatus::answered);
  std::vector<RankStatus> here(local.begin(), local.end());
  if (asked == local.end()) return here;
  auto told = internal::decode_statuses(ask_for_job(*asked, patience));
  if (!told) return here;
  for (RankStatus& rank : *told) {
    const auto own = std::ranges::find(here, rank.rank, &RankStatus::rank);
    rank.user = asked->user;
    rank.job = asked->job;
    if (own == here.end()) continue;
    rank.process = own->process;
    rank.state = own->state;
    if (rank.host.empty()) rank.host = asked->host;
  }
  return std::move(*told);
}

}  // namespace

std::vector<JobStatus> whole_jobs(const std::vector<RankStatus>& local, Milliseconds patience) {
  std::vector<JobStatus> jobs;
  for (std::size_t begin = 0, end = 0; begin < local.size(); begin = end) {
    const RankStatus& first = local[begin];
    while (end < local.size() && local[end].job == first.job && local[end].user == first.user) ++end;
    jobs.push_back({first.job, first.user, whole_job(std::span(local).subspan(begin, end - begin), patience)});
  }
  return jobs;
}

std::vector<RankStatus> ranks_on_this_host(Milliseconds patience) {
  const SteadyClock clock;
  std::size_t budget = kMaxAllBytes;
  std::vector<Found> found = find_ranks();
  found.resize(std::min(found.size(), kMaxRanks));
  std::vector<RankStatus> ranks;
  for (std::size_t begin = 0; begin < found.size(); begin += kQueriesAtOnce) {
    auto poller = os::Poller::create().take_or_throw();
    QueryRound round(poller);
    const auto some = std::span(found).subspan(begin, std::min(kQueriesAtOnce, found.size() - begin));
    std::vector<RankStatus*> listed;
    for (Found& rank : some) {
      if (round.query(rank)) listed.push_back(&rank.status);
    }
    round.read(saturating_add(clock.now(), patience), clock, budget);
    for (RankStatus* rank : listed) {
      rank->state = os::process_state(rank->process);
      ranks.push_back(std::move(*rank));
    }
  }
  std::ranges::sort(ranks, {},
                    [](const RankStatus& rank) { return std::tie(rank.user, rank.job, rank.rank, rank.process); });
  return ranks;
}

}  // namespace qccl
