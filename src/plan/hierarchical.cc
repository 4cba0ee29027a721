// Hierarchical all_reduce: inside each host uncompressed, between hosts compressed. Chunk (o, h) is
// summed on every host by its o-th rank (phase 0), then on host h from those partial sums in the
// order of hosts (phase 1), and goes back the same way (phases 2 and 3) as the bytes encoded there.
// Each element is encoded once on every host but h, and once there. With unequal hosts as many
// ranks own chunks as the smallest host has.
#include "plan/builder.h"
#include "plan/hosts.h"

namespace qccl::plan {
namespace {

class Hierarchy {
 public:
  explicit Hierarchy(Builder& b) : b_(b), hosts_(b.request()), host_(hosts_.host_of(b.rank())) {}

  void build() {
    for (int chunk = 0; chunk < static_cast<int>(b_.ranges().size()); ++chunk) {
      const int home = chunk % hosts_.count();
      if (b_.rank() != owner(chunk, host_)) {
        member(chunk);
      } else if (host_ == home) {
        home_owner(chunk);
      } else {
        remote_owner(chunk, home);
      }
    }
  }

 private:
  int owner(int chunk, int host) const {
    return hosts_.members(host)[static_cast<std::size_t>(chunk / hosts_.count())];
  }

  // This host's other ranks.
  std::vector<int> neighbours() const {
    std::vector<int> found;
    for (const int rank : hosts_.members(host_)) {
      if (rank != b_.rank()) found.push_back(rank);
    }
    return found;
  }

  void member(int chunk) {
    const int above = owner(chunk, host_);
    b_.add_scratch(chunk, b_.begin_of(chunk), {{StepKind::send_input, 0, {above}, false, /*raw=*/true}});
    b_.add_in_place(chunk, {{StepKind::recv_copy, 3, {above}}});
  }

  void add_host(std::vector<Step>& steps) const {
    for (const int rank : hosts_.members(host_)) {
      if (rank == b_.rank()) {
        steps.push_back({StepKind::local_reduce, 0, {}});
      } else {
        steps.push_back({StepKind::recv_reduce, 0, {rank}, false, /*raw=*/true});
      }
    }
  }

  void remote_owner(int chunk, int home) {
    const int above = owner(chunk, home);
    std::vector<Step> up;
    if (hosts_.members(host_).size() > 1) {
      add_host(up);
      up.push_back({StepKind::send_sum, 1, {above}});
    } else {
      up.push_back({StepKind::send_input, 1, {above}});
    }
    b_.add_scratch(chunk, b_.begin_of(chunk), std::move(up));
    std::vector<Step> down{{StepKind::recv_copy, 2, {above}}};
    if (const auto below = neighbours(); !below.empty()) down.push_back({StepKind::forward, 3, below});
    b_.add_in_place(chunk, std::move(down));
  }

  void home_owner(int chunk) {
    std::vector<Step> steps;
    std::vector<int> owners;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == host_) {
        add_host(steps);
      } else {
        owners.push_back(owner(chunk, host));
        steps.push_back({StepKind::recv_reduce, 1, {owners.back()}});
      }
    }
    steps.push_back({StepKind::finish, 0, {}});
    const auto below = neighbours();
    if (!owners.empty()) steps.push_back({StepKind::send_result, 2, owners});
    if (!below.empty()) steps.push_back({StepKind::send_result, 3, below});
    b_.add_in_place(chunk, std::move(steps));
  }

  Builder& b_;
  const Hosts hosts_;
  const int host_;
};

}  // namespace

void build_hierarchical(Builder& builder) { Hierarchy(builder).build(); }

}  // namespace qccl::plan
