// The public ranks_on_this_host(): asks every rank that listens, many at once.
//
// Anyone can listen under a name like a rank's. So the name's user must be the one that the kernel tells, and an answer
// may be so long and take so much time; what is beyond counts as no answer.
#include "qccl/status.h"

#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "comm/inspect/status_server.h"
#include "os/net/poller.h"
#include "os/net/stream.h"
#include "os/net/unix_socket.h"
#include "os/process.h"

namespace qccl {
namespace {

constexpr std::size_t kMaxRanks = 1024;                 // of one host
constexpr std::size_t kAskedAtOnce = 128;               // descriptors
constexpr std::size_t kMaxAllBytes = 16 * 1024 * 1024;  // of all answers
constexpr std::size_t kReadBytes = 4096;

struct Found {
  std::string name;
  RankStatus status;
};

// Those that may be asked: this user's first, for root then everybody's, so that no other user's crowd them out.
std::vector<Found> find_ranks() {
  const std::uint32_t own = os::own_credentials().user;
  std::vector<Found> ranks;
  for (std::string& name : os::abstract_listeners(comm::status_socket_prefix())) {
    auto status = comm::parse_status_socket_name(name);
    if (status && (own == 0 || status->user == own)) ranks.push_back({std::move(name), std::move(*status)});
  }
  const auto order = [own](const Found& rank) { return std::pair(rank.status.user != own, rank.status.user); };
  std::sort(ranks.begin(), ranks.end(), [&](const Found& a, const Found& b) { return order(a) < order(b); });
  return ranks;
}

// One round of questions.
class Round {
 public:
  explicit Round(os::Poller& poller) : poller_(poller) {}

  // False if no process of the user that it names listens there.
  bool ask(Found& rank);
  // Until all have answered or `deadline` has come. Takes what is read off `budget`.
  void read(TimePoint deadline, const Clock& clock, std::size_t& budget);

 private:
  struct Asked {
    RankStatus* status;
    os::Fd connection;
    std::string text;
  };
  bool read_piece(Asked& asked, std::size_t& budget);

  os::Poller& poller_;
  std::vector<Asked> asked_;
  std::size_t open_ = 0;  // that have not ended
};

// Where too many have asked one that is stopped, nothing but its process's owner is to be seen.
bool Round::ask(Found& rank) {
  RankStatus& status = rank.status;
  auto connection = os::connect_unix_abstract(rank.name);
  if (!connection && connection.error().kind == ErrorKind::peer_lost) return false;  // it has just ended
  if (!connection) return os::process_user(status.process) == status.user;
  auto owner = os::peer_credentials(*connection);
  if (!owner || owner->user != status.user) return false;
  if (!poller_.watch(connection->get(), asked_.size())) return true;
  asked_.push_back({&status, std::move(*connection), {}});
  ++open_;
  return true;
}

void Round::read(TimePoint deadline, const Clock& clock, std::size_t& budget) {
  for (TimePoint now = clock.now(); open_ > 0 && now < deadline; now = clock.now()) {
    for (const auto& event : poller_.wait(deadline - now)) {
      Asked& asked = asked_[event.token];
      if (read_piece(asked, budget)) continue;
      asked.connection.reset();
      --open_;
    }
  }
}

// False at the end of an answer, or if it is too long.
bool Round::read_piece(Asked& asked, std::size_t& budget) {
  std::array<std::byte, kReadBytes> piece;
  const os::IoResult got = os::read_some(asked.connection.get(), piece);
  if (got.lost()) {
    asked.status->answered = comm::decode_status(asked.text, *asked.status).ok();
    return false;
  }
  if (got.bytes > budget || asked.text.size() + got.bytes > comm::kMaxStatusBytes) return false;
  asked.text.append(reinterpret_cast<const char*>(piece.data()), got.bytes);
  budget -= got.bytes;
  return true;
}

}  // namespace

std::vector<RankStatus> ranks_on_this_host(Milliseconds patience) {
  const SteadyClock clock;
  std::size_t budget = kMaxAllBytes;
  std::vector<Found> found = find_ranks();
  found.resize(std::min(found.size(), kMaxRanks));
  std::vector<RankStatus> ranks;
  for (std::size_t begin = 0; begin < found.size(); begin += kAskedAtOnce) {
    auto poller = os::Poller::create().take_or_throw();
    Round round(poller);
    const auto some = std::span(found).subspan(begin, std::min(kAskedAtOnce, found.size() - begin));
    std::vector<RankStatus*> listed;
    for (Found& rank : some) {
      if (round.ask(rank)) listed.push_back(&rank.status);
    }
    round.read(saturating_add(clock.now(), patience), clock, budget);
    for (RankStatus* rank : listed) {
      rank->state = os::process_state(rank->process);
      ranks.push_back(std::move(*rank));
    }
  }
  std::sort(ranks.begin(), ranks.end(), [](const RankStatus& a, const RankStatus& b) {
    return std::tie(a.user, a.job, a.rank, a.process) < std::tie(b.user, b.job, b.rank, b.process);
  });
  return ranks;
}

}  // namespace qccl
