#include "job_faults.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

namespace qccl::testing {
namespace {

using std::chrono::steady_clock;

const char* action_name(Fault::Action action) {
  switch (action) {
    case Fault::Action::kill: return "kill";
    case Fault::Action::stop: return "stop";
    case Fault::Action::cut: break;
  }
  return "cut";
}

}  // namespace

void JobRank::resume() {
  if (!running || !stopped) return;
  stopped = false;
  ::kill(started.process, SIGCONT);
}

FaultInjector::FaultInjector(const std::vector<Fault>& faults, std::vector<JobRank>& ranks) : ranks_(ranks) {
  for (const Fault& fault : faults) faults_.push_back({fault});
}

void FaultInjector::on_point(std::size_t rank, const std::string& name, Time time) {
  ranks_[rank].report.points.emplace(name, time);
  bool waits = false;
  for (PlannedFault& planned : faults_) {
    const Fault& fault = planned.fault;
    if (static_cast<std::size_t>(fault.rank) != rank || fault.point != name || planned.due) continue;
    planned.due = time + fault.after.value_or(Milliseconds(0));
    planned.waited_for = !fault.after;
    if (planned.waited_for) begin(planned);
    waits = waits || (planned.waited_for && fault.action != Fault::Action::stop);
  }
  if (!waits) ranks_[rank].send(PacketKind::go);
}

void FaultInjector::on_cut(std::size_t rank, long connections, Time time) {
  for (PlannedFault& planned : faults_) {
    const bool is_it = planned.begun && !planned.done && planned.fault.action == Fault::Action::cut &&
                       static_cast<std::size_t>(planned.fault.rank) == rank;
    if (is_it && connections > 0) finish(planned, time);
    if (is_it && planned.waited_for) ranks_[rank].send(PacketKind::go);
  }
}

Time FaultInjector::next_time() const {
  Time next = Time::max();
  for (const PlannedFault& planned : faults_) {
    if (planned.due && !planned.begun) next = std::min(next, *planned.due);
    if (planned.resume) next = std::min(next, *planned.resume);
  }
  return next;
}

void FaultInjector::act(Time now) {
  for (PlannedFault& planned : faults_) {
    if (planned.due && !planned.begun && now >= *planned.due) begin(planned);
    if (planned.resume && now >= *planned.resume) {
      planned.resume.reset();
      rank_of(planned).resume();
    }
  }
}

void FaultInjector::begin(PlannedFault& planned) {
  planned.begun = true;
  JobRank& rank = rank_of(planned);
  if (!rank.running) return;
  if (planned.fault.action == Fault::Action::cut) return rank.send(PacketKind::do_cut);
  const pid_t id = rank.started.process;
  if (planned.fault.action == Fault::Action::kill) {
    finish(planned, steady_clock::now());  // before kill(): peers may see the rank gone before kill() returns
    ::kill(id, SIGKILL);
    return;
  }
  ::kill(id, SIGSTOP);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(id), &info, WSTOPPED | WEXITED | WNOWAIT);
  rank.stopped = true;
  const Time stopped = steady_clock::now();
  if (planned.fault.lasting) planned.resume = stopped + *planned.fault.lasting;
  finish(planned, stopped);
}

void FaultInjector::finish(PlannedFault& planned, Time time) {
  planned.done = true;
  rank_of(planned).report.fault = time;
}

std::vector<std::string> FaultInjector::missed() const {
  std::vector<std::string> missed;
  for (const PlannedFault& planned : faults_) {
    if (planned.done) continue;
    const Fault& fault = planned.fault;
    std::string text = std::string(action_name(fault.action)) + " of rank " + std::to_string(fault.rank) +
                       " at point '" + fault.point + "' did not happen: ";
    if (planned.begun && fault.action == Fault::Action::cut) {
      text += "it had no connection";
    } else if (planned.due) {
      text += "the rank had ended before";
    } else {
      text += "the rank never reached it";
      for (const auto& [name, time] : rank_of(planned).report.points) {
        text += (text.ends_with("it") ? ", only " : ", ") + name;
      }
    }
    missed.push_back(text);
  }
  return missed;
}

}  // namespace qccl::testing
