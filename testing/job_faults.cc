// The faults that a job injects into its ranks at the points that its test names.
#include <sys/wait.h>

#include <csignal>

#include "job.h"

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

void Job::on_point(std::size_t rank, const std::string& name, Time time) {
  outcomes_[rank].report.points.emplace(name, time);
  bool waits = false;
  for (PlannedFault& planned : faults_) {
    const Fault& fault = planned.fault;
    if (static_cast<std::size_t>(fault.rank) != rank || fault.point != name || planned.due) continue;
    planned.due = time + fault.after.value_or(Milliseconds(0));
    planned.waited_for = !fault.after;
    if (planned.waited_for) begin_fault(planned);
    waits = waits || (planned.waited_for && fault.action != Fault::Action::stop);
  }
  if (!waits) let_go(rank);
}

void Job::begin_fault(PlannedFault& planned) {
  planned.begun = true;
  Process& process = processes_[static_cast<std::size_t>(planned.fault.rank)];
  if (!process.running) return;
  const pid_t id = process.started.process;
  if (planned.fault.action == Fault::Action::cut) {
    send_packet(process.started.channel.get(), PacketKind::do_cut);
    return;
  }
  if (planned.fault.action == Fault::Action::kill) {
    finish_fault(planned, steady_clock::now());  // before kill(): peers may see the rank gone before kill() returns
    ::kill(id, SIGKILL);
    return;
  }
  ::kill(id, SIGSTOP);
  siginfo_t info{};
  ::waitid(P_PID, static_cast<id_t>(id), &info, WSTOPPED | WEXITED | WNOWAIT);
  process.stopped = true;
  const Time stopped = steady_clock::now();
  if (planned.fault.lasting) planned.resume = stopped + *planned.fault.lasting;
  finish_fault(planned, stopped);
}

void Job::finish_fault(PlannedFault& planned, Time time) {
  planned.done = true;
  outcomes_[static_cast<std::size_t>(planned.fault.rank)].report.fault = time;
}

void Job::resume_stopped(std::size_t rank) {
  Process& process = processes_[rank];
  if (!process.running || !process.stopped) return;
  process.stopped = false;
  ::kill(process.started.process, SIGCONT);
}

void Job::let_go(std::size_t rank) { send_packet(processes_[rank].started.channel.get(), PacketKind::go); }

std::vector<std::string> Job::missed_faults() const {
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
      text += "it never came there";
      for (const auto& [name, time] : outcomes_[static_cast<std::size_t>(fault.rank)].report.points) {
        text += (text.ends_with("there") ? ", only to " : ", ") + name;
      }
    }
    missed.push_back(text);
  }
  return missed;
}

}  // namespace qccl::testing
