// The interface of a rank for a test's function, and the table of reasons to skip.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "qccl/diagnostics.h"
#include "rank_process.h"

namespace qccl::testing {
namespace {

constexpr std::array kSkipCodes = {
    SkipCode{Skip::transport_unavailable, "transport_unavailable", "the transport can't be used on this machine"},
    SkipCode{Skip::world_too_small, "world_too_small", "the job has too few ranks"},
    SkipCode{Skip::not_root, "not_root", "needs root"},
    SkipCode{Skip::too_few_cores, "too_few_cores", "this process may run on too few cores"},
    SkipCode{Skip::other, "other", "as the test says"},
};

int available_cores() {
  cpu_set_t cores;
  return ::sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

}  // namespace

std::span<const SkipCode> skip_codes() { return kSkipCodes; }

int Rank::rank() const { return process_.rank(); }

int Rank::world() const { return process_.options().world; }

InitOptions Rank::options() const {
  const JobOptions& job = process_.options();
  InitOptions options;
  options.rank = rank();
  options.world = world();
  options.store = process_.store();
  options.transport = job.transport;
  options.timeout = std::max(job.deadline / 2, Milliseconds(1));
  options.init_timeout = options.timeout;
  return options;
}

Communicator Rank::init() { return init(options()); }

Communicator Rank::init(const InitOptions& options) {
  Communicator comm = qccl::init(options);
  process_.watch(comm);
  return comm;
}

void Rank::point(const std::string& name) { process_.point(name); }

void Rank::skip(Skip skip, const std::string& reason) {
  process_.report_skip(skip, reason);
  throw SkipRank{};
}

void Rank::need_world(int ranks) {
  if (world() >= ranks) return;
  skip(Skip::world_too_small, "needs " + std::to_string(ranks) + " ranks and has " + std::to_string(world()));
}

void Rank::need_transport(TransportChoice transport) {
  InitOptions asked = options();
  asked.transport = transport;
  const char* topic = transport == TransportChoice::tcp ? "interfaces" : "shared memory";
  for (const Finding& finding : diagnose(asked)) {
    if (finding.topic == topic && finding.level == Finding::Level::broken) {
      skip(Skip::transport_unavailable, finding.text + ": " + finding.remedy);
    }
  }
}

void Rank::need_root() {
  if (::geteuid() != 0) skip(Skip::not_root, "needs root");
}

void Rank::need_cores(int cores) {
  if (available_cores() >= cores) return;
  skip(Skip::too_few_cores,
       "needs " + std::to_string(cores) + " cores and may use " + std::to_string(available_cores()));
}

}  // namespace qccl::testing
