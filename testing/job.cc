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

// Throws if the options are invalid.
const JobOptions& checked(const JobOptions& options) {
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
  return options;
}

std::string seconds_text(Milliseconds duration) {
  std::ostringstream text;
  text << std::chrono::duration<double>(duration).count() << " s";
  return text.str();
}

// Appends what the rank has written to its output.
void read_output(JobRank& rank) {
  Fd& pipe = rank.started.output;
  std::string& output = rank.report.output;
  std::array<char, 16 << 10> piece;
  while (pipe.get() >= 0) {
    const ssize_t size = ::read(pipe.get(), piece.data(), piece.size());
    if (size < 0 && errno == EINTR) continue;
    if (size == 0) pipe.reset();
    if (size <= 0) return;
    output.append(piece.data(), std::min(static_cast<std::size_t>(size), kMaxOutputBytes - output.size()));
  }
}

void count_answer(JobRank& rank) { rank.answers_due -= std::min<std::size_t>(rank.answers_due, 1); }

// Asks a rank that does not end for its state and for the stack of each of its threads.
void request_evidence(JobRank& rank) {
  const pid_t id = rank.started.process;
  if (auto modules = modules_of(id); !modules.empty()) rank.modules = std::move(modules);
  if (rank.began && !rank.stopped) {
    rank.send(PacketKind::describe);
    ++rank.answers_due;
  }
  for (const Thread& thread : threads_of(id)) {
    if (thread.name == kListenerName) continue;
    rank.evidence += "    thread " + std::to_string(thread.id) + " (" + thread.name + "), state " + thread.state +
                     (thread.waits_in.empty() ? "" : " in " + thread.waits_in) + "\n";
    const bool can_answer = rank.began && thread.state != 'T' && thread.state != 'Z';
    if (can_answer && ::syscall(SYS_tgkill, id, thread.id, stack_signal()) == 0) ++rank.answers_due;
  }
}

void take_stack(JobRank& rank, const Packet& packet) {
  const bool is_crash = packet.kind == PacketKind::crash;
  rank.evidence += (is_crash ? "    stack at signal " : "    stack of thread ") + packet.fields.at(0) + ":\n" +
                   describe_stack(rank.modules, packet.fields.at(1));
  if (!is_crash) count_answer(rank);
}

bool ended_well(const JobRank& rank, const End& expected) {
  return rank.report.end == expected && rank.parts.empty() && !rank.skip;
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

// ---- the store

void JobStore::on_packet(const JobRank& rank, const Packet& packet) {
  if (packet.kind == PacketKind::set) return set(packet.fields.at(0), packet.fields.at(1));
  const std::string& request = packet.fields.at(0);
  const std::string& key = packet.fields.at(1);
  const auto present = values_.find(key);
  if (packet.kind == PacketKind::add) {
    const long long sum =
        (present == values_.end() ? 0 : std::stoll(present->second)) + std::stoll(packet.fields.at(2));
    rank.send(PacketKind::value, {request, std::to_string(sum)});
    set(key, std::to_string(sum));
  } else if (present != values_.end()) {
    rank.send(PacketKind::value, {request, present->second});
  } else {
    waiting_.push_back({&rank, request, key});
  }
}

void JobStore::set(const std::string& key, const std::string& value) {
  values_[key] = value;
  std::erase_if(waiting_, [&](const WaitingGet& get) {
    if (get.key == key) get.rank->send(PacketKind::value, {get.request, value});
    return get.key == key;
  });
}

// ---- the job

Job::Job(const JobOptions& options, int call, const std::function<void(Rank&)>& body)
    : options_(checked(options)),
      call_(call),
      body_(body),
      ranks_(static_cast<std::size_t>(options.world)),
      faults_(options.faults, ranks_) {}

Job::~Job() {
  guard_.kill_group();
  for (const JobRank& rank : ranks_) {
    if (rank.running && rank.started.process > 0) ::waitpid(rank.started.process, nullptr, 0);
  }
}

void Job::run() {
  start();
  while (is_running()) {
    pump(std::min({deadline_, grace_end_.value_or(deadline_), faults_.next_time()}));
    act_on_time(steady_clock::now());
  }
}

void Job::start() {
  deadline_ = steady_clock::now() + options_.deadline;
  const auto close_others = [this] {
    for (JobRank& rank : ranks_) rank.started = {};
  };
  for (int rank = 0; rank < options_.world; ++rank) {
    ranks_[static_cast<std::size_t>(rank)].started = start_rank({options_, rank, call_, guard_}, body_, close_others);
  }
}

bool Job::is_running() const { return std::ranges::any_of(ranks_, &JobRank::running); }

void Job::pump(Time until) {
  std::vector<pollfd> polled;
  std::vector<std::pair<std::size_t, const Fd*>> sources;  // ranks and their descriptors
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const StartedRank& started = ranks_[rank].started;
    if (!ranks_[rank].running) continue;
    for (const Fd* fd : {&started.channel, &started.output, &started.ended}) {
      if (fd->get() < 0) continue;
      polled.push_back({fd->get(), POLLIN, 0});
      sources.emplace_back(rank, fd);
    }
  }
  const auto left = std::chrono::ceil<Milliseconds>(until - steady_clock::now());
  const auto wait = std::clamp<Milliseconds::rep>(left.count(), 0, 60'000);
  if (::poll(polled.data(), polled.size(), static_cast<int>(wait)) <= 0) return;
  for (std::size_t i = 0; i < polled.size(); ++i) {
    if (polled[i].revents == 0) continue;
    const auto [rank, fd] = sources[i];
    StartedRank& started = ranks_[rank].started;
    read_output(ranks_[rank]);
    while (read_packet(rank)) {
    }
    if (fd == &started.ended) take_end(rank);
    if (fd == &started.channel && (polled[i].revents & POLLIN) == 0) started.channel.reset();
  }
}

void Job::act_on_time(Time now) {
  faults_.act(now);
  if (!is_running()) return;
  // Stopped ranks alone would wait for the deadline.
  if (std::ranges::none_of(ranks_, &JobRank::is_blocking)) std::ranges::for_each(ranks_, &JobRank::resume);
  if (now >= deadline_) return end_all("the deadline of " + seconds_text(options_.deadline) + " passed");
  if (grace_end_ && now >= *grace_end_) {
    end_all(seconds_text(options_.grace) + " had passed since " + odd_end_);
  }
}

bool Job::read_packet(std::size_t rank) {
  const auto packet = receive_packet(ranks_[rank].started.channel.get(), false);
  if (packet) on_packet(rank, *packet);
  return packet.has_value();
}

void Job::on_packet(std::size_t index, const Packet& packet) {
  JobRank& rank = ranks_[index];
  switch (packet.kind) {
    case PacketKind::hello:
      rank.began = true;
      rank.modules = modules_of(rank.started.process);
      return rank.send(PacketKind::go);
    case PacketKind::point: return faults_.on_point(index, packet.fields.at(0), time_of(packet.fields.at(1)));
    case PacketKind::failure:
      rank.parts.push_back(
          {packet.fields.at(0) == "1", packet.fields.at(1), static_cast<int>(packet.number(2)), packet.fields.at(3)});
      return rank.report.failures.push_back(packet.fields.at(3));
    case PacketKind::skip: rank.skip = {static_cast<Skip>(packet.number(0)), packet.fields.at(1)}; return;
    case PacketKind::finished: rank.report.finished = true; return;
    case PacketKind::stack:
    case PacketKind::crash: return take_stack(rank, packet);
    case PacketKind::state: rank.evidence += packet.fields.at(0); return count_answer(rank);
    case PacketKind::cut: return faults_.on_cut(index, packet.number(0), time_of(packet.fields.at(1)));
    default: return store_.on_packet(rank, packet);
  }
}

void Job::take_end(std::size_t index) {
  JobRank& rank = ranks_[index];
  int status = 0;
  if (!rank.running || ::waitpid(rank.started.process, &status, WNOHANG) != rank.started.process) return;
  read_output(rank);
  while (read_packet(index)) {
  }
  rank.running = false;
  rank.stopped = false;
  rank.answers_due = 0;
  rank.report.end = WIFSIGNALED(status) ? killed(WTERMSIG(status)) : exited(WEXITSTATUS(status));
  if (why_ended_.empty() && !grace_end_ && !ended_well(rank, expected_end(options_, static_cast<int>(index)))) {
    grace_end_ = steady_clock::now() + options_.grace;
    odd_end_ = "rank " + std::to_string(index) + " " + to_text(rank.report.end);
  }
}

void Job::end_all(const std::string& why) {
  why_ended_ = why;
  for (JobRank& rank : ranks_) {
    if (!rank.running) continue;
    rank.left_running = true;
    request_evidence(rank);
  }
  const auto is_due = [](const JobRank& rank) { return rank.running && rank.answers_due > 0; };
  const Time limit = steady_clock::now() + kEvidencePatience;
  while (std::ranges::any_of(ranks_, is_due) && steady_clock::now() < limit) pump(limit);
  guard_.kill_group();
  for (const JobRank& rank : ranks_) {
    if (rank.running) ::kill(rank.started.process, SIGKILL);  // one that left the group
  }
  while (is_running()) pump(Time::max());
}

}  // namespace qccl::testing
