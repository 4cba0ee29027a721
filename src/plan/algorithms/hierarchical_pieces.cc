// Hierarchical all_gather and reduce_scatter: a rank's piece passes between two hosts once. On every other host the
// rank has an agent. In an all_gather the agent receives the piece and forwards its bytes to the agent's neighbours. In
// a reduce_scatter it adds up its host's parts of the piece, uncompressed inside the host, and sends the sum. The
// agents of a host's k-th rank are the k-th ranks of the other hosts, modulo their number of ranks.
#include "plan/algorithms/builder.h"
#include "plan/algorithms/hosts.h"

namespace qccl::plan {
namespace {

class Pieces {
 public:
  explicit Pieces(Builder& b)
      : b_(b), hosts_(b.request()), host_(hosts_.host_of(b.rank())), neighbours_(hosts_.others(host_, b.rank())) {}

  void all_gather() {
    give_own();
    for (const int piece : b_.others()) take(piece);
  }

  void reduce_scatter() {
    for (const int piece : b_.others()) give_part(piece);
    sum_own();
  }

 private:
  // On its own host a rank is its own agent.
  int agent(int rank, int host) const {
    if (host == hosts_.host_of(rank)) return rank;
    const auto& members = hosts_.members(host);
    return members[static_cast<std::size_t>(hosts_.place_of(rank)) % members.size()];
  }

  // This rank's agents on other hosts, the next host first.
  std::vector<int> own_agents() const {
    std::vector<int> agents;
    for (int distance = 1; distance < hosts_.count(); ++distance) {
      agents.push_back(agent(b_.rank(), (host_ + distance) % hosts_.count()));
    }
    return agents;
  }

  // ---- all_gather

  void give_own() {
    const int own = b_.rank();
    const Step keep{StepKind::local_copy, 0, {}, b_.request().compressed};
    auto below = own_agents();
    below.insert(below.end(), neighbours_.begin(), neighbours_.end());
    if (below.empty()) return b_.add(own, 0, b_.begin_of(own), {keep});
    // Compressed in place, a slice must have left before its decoded form overwrites it.
    std::vector<Step> give{{StepKind::send_input, 0, std::move(below)}};
    if (b_.request().compressed) {
      give.push_back(keep);
    } else {
      b_.add(own, 0, b_.begin_of(own), {keep});
    }
    b_.add(own, 0, b_.begin_of(own), std::move(give));
  }

  void take(int piece) {
    const int here = agent(piece, host_);
    if (here != b_.rank()) {
      const std::uint16_t arrives = here == piece ? 0 : 1;
      return b_.add(piece, 0, b_.begin_of(piece), {{StepKind::recv_copy, arrives, {here}}});
    }
    std::vector<Step> steps{{StepKind::recv_copy, 0, {piece}}};
    if (!neighbours_.empty()) steps.push_back({StepKind::forward, 1, neighbours_});
    b_.add(piece, 0, b_.begin_of(piece), std::move(steps));
  }

  // ---- reduce_scatter

  void add_host(std::vector<Step>& steps) const {
    for (const int rank : hosts_.members(host_)) {
      if (rank == b_.rank()) {
        steps.push_back({StepKind::local_reduce, 0, {}});
      } else {
        steps.push_back({StepKind::recv_reduce, 0, {rank}, false, /*raw=*/true});
      }
    }
  }

  void give_part(int piece) {
    const int here = agent(piece, host_);
    std::vector<Step> steps;
    if (here != b_.rank()) {
      steps.push_back({StepKind::send_input, 0, {here}, false, /*raw=*/true});
    } else if (neighbours_.empty()) {
      steps.push_back({StepKind::send_input, 1, {piece}});
    } else {
      add_host(steps);
      steps.push_back({StepKind::send_sum, 1, {piece}});
    }
    b_.add_scratch(piece, b_.begin_of(piece), std::move(steps));
  }

  void sum_own() {
    std::vector<Step> steps;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == host_) {
        add_host(steps);
      } else {
        steps.push_back({StepKind::recv_reduce, 1, {agent(b_.rank(), host)}});
      }
    }
    steps.push_back({StepKind::finish, 0, {}});
    b_.add(b_.rank(), b_.begin_of(b_.rank()), 0, std::move(steps));
  }

  Builder& b_;
  const Hosts hosts_;
  const int host_;
  const std::vector<int> neighbours_;
};

}  // namespace

void build_hierarchical_pieces(Builder& builder) {
  Pieces pieces(builder);
  if (builder.request().collective == Collective::all_gather) {
    pieces.all_gather();
  } else {
    pieces.reduce_scatter();
  }
}

}  // namespace qccl::plan
