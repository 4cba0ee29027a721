#include "job.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "rank_process.h"

namespace qccl::testing {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t kMaxOutputBytes = 1 << 20;
constexpr int kMaxWorld = 1024;
// How long ranks may take to report their stacks and state; ranks that do not are ended without a report.
constexpr Milliseconds kEvidencePatience{3'000};

Time time_of(const std::string& text) { return Time(steady_clock::duration(std::stoll(text))); }

void check(const JobOptions& options) {
  const auto is_rank = [&](int rank) { return rank >= 0 && rank < options.world; };
  if (options.world < 1 || options.world > kMaxWorld) throw std::invalid_argument("JobOptions::world: 1 to 1024");
  if (options.start == Start::spawn && ::testing::UnitTest::GetInstance()->current_test_info() == nullptr) {
    throw std::invalid_argument("JobOptions::start: a process is spawned for the test that runs, and none does");
  }
  for (const Fault& fault : options.faults) {
    if (!is_rank(fault.rank)) throw std::invalid_argument("JobOptions::faults: no such rank in the world");
    if (fault.point.empty()) throw std::invalid_argument("JobOptions::faults: a fault needs a point");
  }
  for (const auto& [rank, end] : options.ends) {
    if (!is_rank(rank)) throw std::invalid_argument("JobOptions::ends: no such rank in the world");
  }
}

std::string seconds_text(Milliseconds duration) {
  std::ostringstream text;
  text << std::chrono::duration<double>(duration).count() << " s";
  return text.str();
}

}  // namespace

End expected_end(const JobOptions& options, int rank) {
  if (const auto named = options.ends.find(rank); named != options.ends.end()) return named->second;
  for (const Fault& fault : options.faults) {
    if (fault.rank == rank && fault.action == Fault::Action::kill) return killed(SIGKILL);
  }
  return exited(0);
}

std::string to_text(const End& end) {
  if (end.kind == End::Kind::exited) return "exited with code " + std::to_string(end.code);
  return "was killed by signal " + std::to_string(end.code) + " (" + ::strsignal(end.code) + ")";
}

Job::Job(const JobOptions& options, int call, const std::function<void(Rank&)>& body)
    : options_(options), call_(call), body_(body) {
  check(options);
  processes_.resize(static_cast<std::size_t>(options.world));
  outcomes_.resize(processes_.size());
  for (const Fault& fault : options.faults) faults_.push_back({fault});
}

Job::~Job() {
  guard_.kill_group();
  for (const Process& process : processes_) {
    if (process.running && process.started.process > 0) ::waitpid(process.started.process, nullptr, 0);
  }
}

void Job::run() {
  start();
  while (count_running() > 0) {
    pump(next_time());
    act_on_time(steady_clock::now());
  }
}

void Job::start() {
  deadline_ = steady_clock::now() + options_.deadline;
  const auto close_others = [this] {
    for (Process& process : processes_) process.started = {};
  };
  for (int rank = 0; rank < options_.world; ++rank) {
    processes_[static_cast<std::size_t>(rank)].started =
        start_rank({options_, rank, call_, guard_}, body_, close_others);
  }
}

int Job::count_running() const {
  return static_cast<int>(
      std::count_if(processes_.begin(), processes_.end(), [](const Process& p) { return p.running; }));
}

// The ranks that must end before the job ends a stopped one.
int Job::count_blocking() const {
  return static_cast<int>(
      std::count_if(processes_.begin(), processes_.end(), [](const Process& p) { return p.running && !p.stopped; }));
}

// ---- events

void Job::pump(Time until) {
  struct Source {
    std::size_t rank;
    const Fd* fd;
  };
  std::vector<pollfd> polled;
  std::vector<Source> sources;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const StartedRank& started = processes_[rank].started;
    if (!processes_[rank].running) continue;
    for (const Fd* fd : {&started.channel, &started.output, &started.ended}) {
      if (fd->get() < 0) continue;
      polled.push_back({fd->get(), POLLIN, 0});
      sources.push_back({rank, fd});
    }
  }
  const auto left = std::chrono::ceil<Milliseconds>(until - steady_clock::now());
  const auto wait = std::clamp<Milliseconds::rep>(left.count(), 0, 60'000);
  if (::poll(polled.data(), polled.size(), static_cast<int>(wait)) <= 0) return;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    const std::size_t rank = sources[i].rank;
    StartedRank& started = processes_[rank].started;
    read_output(rank);
    while (read_packet(rank)) {
    }
    if (sources[i].fd == &started.ended) take_end(rank);
    if (sources[i].fd == &started.channel && (polled[i].revents & POLLIN) == 0) started.channel.reset();
  }
}

Time Job::next_time() const {
  Time next = grace_end_ ? std::min(deadline_, *grace_end_) : deadline_;
  for (const PlannedFault& planned : faults_) {
    if (planned.due && !planned.begun) next = std::min(next, *planned.due);
    if (planned.resume) next = std::min(next, *planned.resume);
  }
  return next;
}

void Job::act_on_time(Time now) {
  for (PlannedFault& planned : faults_) {
    if (planned.due && !planned.begun && now >= *planned.due) begin_fault(planned);
    if (planned.resume && now >= *planned.resume) {
      planned.resume.reset();
      resume_stopped(static_cast<std::size_t>(planned.fault.rank));
    }
  }
  if (count_running() == 0) return;
  if (count_blocking() == 0) {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) resume_stopped(rank);
  }
  if (now >= deadline_) return end_all("the deadline of " + seconds_text(options_.deadline) + " passed");
  if (grace_end_ && now >= *grace_end_) {
    end_all(seconds_text(options_.grace) + " had passed since " + odd_end_);
  }
}

void Job::read_output(std::size_t rank) {
  Fd& pipe = processes_[rank].started.output;
  std::string& output = outcomes_[rank].report.output;
  std::array<char, 16 << 10> piece;
  while (pipe.get() >= 0) {
    const ssize_t size = ::read(pipe.get(), piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size == 0) pipe.reset();
    if (size <= 0) return;
    output.append(piece.data(), std::min(static_cast<std::size_t>(size), kMaxOutputBytes - output.size()));
  }
}

bool Job::read_packet(std::size_t rank) {
  const auto packet = receive_packet(processes_[rank].started.channel.get(), false);
  if (packet) on_packet(rank, *packet);
  return packet.has_value();
}

void Job::on_packet(std::size_t rank, const Packet& packet) {
  RankResult& outcome = outcomes_[rank];
  Process& process = processes_[rank];
  switch (packet.kind) {
    case PacketKind::hello:
      outcome.began = true;
      process.modules = modules_of(process.started.process);
      return let_go(rank);
    case PacketKind::point: return on_point(rank, packet.fields.at(0), time_of(packet.fields.at(1)));
    case PacketKind::failure:
      outcome.parts.push_back(
          {packet.fields.at(0) == "1", packet.fields.at(1), static_cast<int>(packet.number(2)), packet.fields.at(3)});
      return outcome.report.failures.push_back(packet.fields.at(3));
    case PacketKind::skip: outcome.skip = {static_cast<Skip>(packet.number(0)), packet.fields.at(1)}; return;
    case PacketKind::finished: outcome.report.finished = true; return;
    case PacketKind::stack:
    case PacketKind::crash: return on_stack(rank, packet);
    case PacketKind::state:
      outcome.evidence += packet.fields.at(0);
      process.answers_due -= std::min<std::size_t>(process.answers_due, 1);
      return;
    case PacketKind::cut:
      for (PlannedFault& planned : faults_) {
        const bool is_it = planned.begun && !planned.done && planned.fault.action == Fault::Action::cut &&
                           static_cast<std::size_t>(planned.fault.rank) == rank;
        if (is_it && packet.number(0) > 0) finish_fault(planned, time_of(packet.fields.at(1)));
        if (is_it && planned.waited_for) let_go(rank);
      }
      return;
    default: return on_store(rank, packet);
  }
}

// ---- the store through which ranks meet

void Job::on_store(std::size_t rank, const Packet& packet) {
  if (packet.kind == PacketKind::set) {
    store_[packet.fields.at(0)] = packet.fields.at(1);
    return answer_gets(packet.fields.at(0));
  }
  const std::string& request = packet.fields.at(0);
  const std::string& key = packet.fields.at(1);
  if (packet.kind == PacketKind::get) {
    waiting_gets_.push_back({rank, request, key});
    return answer_gets(key);
  }
  const auto present = store_.find(key);
  const long long sum = (present == store_.end() ? 0 : std::stoll(present->second)) + std::stoll(packet.fields.at(2));
  store_[key] = std::to_string(sum);
  send_packet(processes_[rank].started.channel.get(), PacketKind::value, {request, store_[key]});
  answer_gets(key);
}

void Job::answer_gets(const std::string& key) {
  const auto present = store_.find(key);
  if (present == store_.end()) return;
  std::erase_if(waiting_gets_, [&](const WaitingGet& get) {
    if (get.key != key) return false;
    send_packet(processes_[get.rank].started.channel.get(), PacketKind::value, {get.request, present->second});
    return true;
  });
}

// ---- ends

void Job::take_end(std::size_t rank) {
  Process& process = processes_[rank];
  int status = 0;
  if (!process.running || ::waitpid(process.started.process, &status, WNOHANG) != process.started.process) return;
  read_output(rank);
  while (read_packet(rank)) {
  }
  process.running = false;
  process.stopped = false;
  process.answers_due = 0;
  RankResult& outcome = outcomes_[rank];
  outcome.report.end = WIFSIGNALED(status) ? killed(WTERMSIG(status)) : exited(WEXITSTATUS(status));
  if (why_ended_.empty() && !grace_end_ && !ended_well(rank)) {
    grace_end_ = steady_clock::now() + options_.grace;
    odd_end_ = "rank " + std::to_string(rank) + " " + to_text(outcome.report.end);
  }
}

bool Job::ended_well(std::size_t rank) const {
  const RankResult& outcome = outcomes_[rank];
  const End expected = expected_end(options_, static_cast<int>(rank));
  return outcome.report.end == expected && outcome.parts.empty() && !outcome.skip;
}

void Job::end_all(const std::string& why) {
  why_ended_ = why;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    if (!processes_[rank].running) continue;
    outcomes_[rank].left_running = true;
    ask_for_evidence(rank);
  }
  const auto is_due = [](const Process& process) { return process.running && process.answers_due > 0; };
  const Time limit = steady_clock::now() + kEvidencePatience;
  while (std::any_of(processes_.begin(), processes_.end(), is_due) && steady_clock::now() < limit) pump(limit);
  guard_.kill_group();
  for (const Process& process : processes_) {
    if (process.running) ::kill(process.started.process, SIGKILL);  // one that left the group
  }
  while (count_running() > 0) pump(Time::max());
}

// ---- evidence from a rank that does not end

void Job::ask_for_evidence(std::size_t rank) {
  Process& process = processes_[rank];
  RankResult& outcome = outcomes_[rank];
  const pid_t id = process.started.process;
  if (auto modules = modules_of(id); !modules.empty()) process.modules = std::move(modules);
  if (outcome.began && !process.stopped) {
    send_packet(process.started.channel.get(), PacketKind::describe);
    ++process.answers_due;
  }
  for (const Thread& thread : threads_of(id)) {
    if (thread.name == kListenerName) continue;
    outcome.evidence += "    thread " + std::to_string(thread.id) + " (" + thread.name + "), state " + thread.state +
                        (thread.waits_in.empty() ? "" : " in " + thread.waits_in) + "\n";
    const bool can_answer = outcome.began && thread.state != 'T' && thread.state != 'Z';
    if (can_answer && ::syscall(SYS_tgkill, id, thread.id, stack_signal()) == 0) ++process.answers_due;
  }
}

void Job::on_stack(std::size_t rank, const Packet& packet) {
  Process& process = processes_[rank];
  std::string& evidence = outcomes_[rank].evidence;
  const std::string stack = describe_stack(process.modules, packet.fields.at(1));
  if (packet.kind == PacketKind::crash) {
    evidence += "    stack at signal " + packet.fields.at(0) + ":\n" + stack;
  } else {
    evidence += "    stack of thread " + packet.fields.at(0) + ":\n" + stack;
    process.answers_due -= std::min<std::size_t>(process.answers_due, 1);
  }
}

}  // namespace qccl::testing
