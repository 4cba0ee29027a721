#include "chaos/driver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <sstream>

#include "chaos/rank.h"

namespace qccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kHangs{40};  // no news from a process that is not stopped
constexpr seconds kMostToEnd{40};

Time now() { return std::chrono::steady_clock::now(); }

milliseconds draw_ms(Random& random, std::uint64_t least, std::uint64_t most) {
  return milliseconds(least + random.below(most - least));
}

int healthy_members(const std::vector<ChaosProcess>& processes) {
  return static_cast<int>(std::ranges::count_if(
      processes, [](const ChaosProcess& process) { return process.is_member && !process.stopped_until; }));
}

bool is_one_stopped(const std::vector<ChaosProcess>& processes) {
  return std::ranges::any_of(processes, [](const ChaosProcess& process) { return process.stopped_until.has_value(); });
}

std::string differing_results(const std::vector<std::map<std::uint64_t, std::string>>& of_survivors) {
  std::map<std::uint64_t, std::string> results;
  for (const auto& own : of_survivors) {
    for (const auto& [step, result] : own) {
      if (results.try_emplace(step, result).first->second == result) continue;
      return fmt::format("survivors have different members or results in step {}", step);
    }
  }
  return "";
}

}  // namespace

Chaos::Chaos(const ChaosOptions& options)
    : options_(options),
      random_(options.seed),
      shared_(os::create_shared_memory("chaos", 4096).take_or_throw().mapping),
      is_over_(new (shared_.data()) std::atomic<bool>(false)) {}

Chaos::~Chaos() {
  for (ChaosProcess& process : processes_) ::kill(process.pid, SIGKILL);
  for (ChaosProcess& process : processes_) ::waitpid(process.pid, nullptr, 0);
}

std::string Chaos::run() {
  for (int i = 0; i < kRanks; ++i) {
    start_process();
    // The first one is a job of its own, to which the others come.
    while (problem_.empty() && processes_.front().door.empty()) pump(now() + seconds(1));
  }
  while (problem_.empty() && healthy_members(processes_) < kRanks) pump(now() + seconds(1));
  const Time last = now() + options_.duration;
  Time next_injury = now();
  while (problem_.empty() && now() < last) {
    if (now() >= next_injury) {
      const bool is_done = injure();
      next_injury = now() + (is_done ? draw_ms(random_, 500, 1'500) : milliseconds(50));
    }
    pump(std::min(now() + milliseconds(50), next_injury));
    end_stops(now());
    while (problem_.empty() && processes_.size() < kRanks) start_process();
  }
  if (problem_.empty()) end();
  if (problem_.empty()) problem_ = differing_results(results_of_survivors_);
  for (const auto& [id, time] : killed_) {
    const auto retried = retried_.find(id);
    if (retried == retried_.end()) continue;
    counts_.retry_ms.push_back(std::chrono::duration<double, std::milli>(retried->second - time).count());
  }
  std::ranges::sort(counts_.retry_ms);
  return problem_;
}

void Chaos::start_process() {
  ChaosRank rank{.id = next_id_++, .seed = options_.seed, .is_over = is_over_};
  rank.init = {.timeout = milliseconds(3'000),
               .init_timeout = milliseconds(30'000),
               .transport = options_.transport,
               .key = options_.key,
               .open = true};
  for (const ChaosProcess& process : processes_) {
    if (process.door.empty()) continue;
    rank.init.join += (rank.init.join.empty() ? "" : ",") + process.door;
  }
  if (rank.init.join.empty()) rank.init.rank = 0, rank.init.world = 1;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("the system refuses a pipe");
  os::Fd reading(ends[0]);
  rank.channel = ends[1];
  const pid_t driver = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("the system refuses a process");
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != driver) std::_Exit(1);
    run_chaos_rank(rank);
  }
  ::close(ends[1]);
  processes_.push_back({.pid = pid, .id = rank.id, .channel = std::move(reading), .last_news = now()});
}

void Chaos::pump(Time until) {
  std::vector<pollfd> waiting;
  for (const ChaosProcess& process : processes_) waiting.push_back({process.channel.get(), POLLIN, 0});
  const auto left = std::chrono::ceil<milliseconds>(until - now()).count();
  ::poll(waiting.data(), waiting.size(), static_cast<int>(std::max<std::int64_t>(0, left)));
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i].revents != 0) read(processes_[i]);
  }
  std::erase_if(processes_, [](const ChaosProcess& process) { return !process.channel.valid(); });
  find_hanging();
}

void Chaos::read(ChaosProcess& process) {
  char bytes[4096];
  const ssize_t count = ::read(process.channel.get(), bytes, sizeof bytes);
  if (count <= 0) return take_end(process);
  process.last_news = now();
  process.unread.append(bytes, static_cast<std::size_t>(count));
  for (std::size_t end = 0; (end = process.unread.find('\n')) != std::string::npos;) {
    on_line(process, process.unread.substr(0, end));
    process.unread.erase(0, end + 1);
  }
}

void Chaos::on_line(ChaosProcess& process, const std::string& line) {
  std::istringstream words(line);
  std::string word;
  words >> word;
  if (word == "door") {
    words >> process.door;
  } else if (word == "joined") {
    process.is_member = true;
    ++counts_.joins;
  } else if (word == "step") {
    std::uint64_t step = 0;
    words >> step >> process.results[step];
    counts_.steps = std::max(counts_.steps, step + 1);
  } else if (word == "retried") {
    std::int64_t time = 0;
    words >> time;
    for (std::uint64_t id = 0; words >> id;) {
      retried_[id] = std::max(retried_[id], Time(std::chrono::nanoseconds(time)));
    }
  } else if (word == "left") {
    ++counts_.left_out;
    process.is_member = false;
    process.door.clear();
  } else if (word == "ended") {
    std::size_t before = 0, after = 0;
    words >> before >> after;
    process.ends_well = true;
    if (after != before && problem_.empty())
      problem_ = fmt::format("process {}: {} descriptors, {} after", process.id, before, after);
  } else if (problem_.empty()) {
    problem_ = fmt::format("process {}: {}", process.id, line);
  }
}

void Chaos::take_end(ChaosProcess& process) {
  process.channel.reset();
  int status = 0;
  ::waitpid(process.pid, &status, 0);
  const bool was_killed = killed_.contains(process.id);
  if (!was_killed && problem_.empty() && !process.ends_well) {
    problem_ = fmt::format("process {} ended with status {:#x}", process.id, status);
  }
  if (is_over_->load()) results_of_survivors_.push_back(std::move(process.results));
}

// A stopped member that is left out takes more than half of the members it may be stopped with, at most six.
bool Chaos::injure() {
  std::vector<ChaosProcess*> victims;
  for (ChaosProcess& process : processes_) {
    if (!process.stopped_until && process.is_member != next_.hits_newcomer) victims.push_back(&process);
  }
  if (victims.empty()) {
    next_.hits_newcomer = false;
    return false;
  }
  ChaosProcess& victim = *random_.pick(victims);
  const int left = healthy_members(processes_) - (victim.is_member ? 1 : 0);
  const bool has_stopped = is_one_stopped(processes_);
  if (next_.stops ? has_stopped || left < 4 : left < (has_stopped ? 4 : 3)) return false;
  if (next_.stops) {
    ::kill(victim.pid, SIGSTOP);
    ++counts_.stops;
    victim.stopped_until = now() + draw_ms(random_, 50, random_.below(2) == 0 ? 500 : 5'000);
    victim.dies_stopped = random_.below(3) == 0;
  } else {
    kill(victim);
  }
  next_ = {.stops = random_.below(5) < 2, .hits_newcomer = random_.below(5) == 0};
  return true;
}

void Chaos::end_stops(Time at) {
  for (ChaosProcess& process : processes_) {
    if (!process.stopped_until || *process.stopped_until > at) continue;
    process.dies_stopped ? kill(process) : go_on(process);
  }
}

void Chaos::kill(ChaosProcess& process) {
  // A member that was left out while it was stopped has been lost long before.
  if (!process.stopped_until) killed_[process.id] = now();
  ::kill(process.pid, SIGKILL);
  killed_.try_emplace(process.id, now());
  process.stopped_until.reset();
  process.is_member = false;
  process.door.clear();
  ++counts_.kills;
}

void Chaos::go_on(ChaosProcess& process) {
  ::kill(process.pid, SIGCONT);
  process.stopped_until.reset();
  process.last_news = now();
}

void Chaos::find_hanging() {
  for (const ChaosProcess& process : processes_) {
    if (process.stopped_until || now() < process.last_news + kHangs || !problem_.empty()) continue;
    problem_ = fmt::format("process {} hangs", process.id);
  }
}

// Newcomers that no member has taken in cannot end by themselves.
void Chaos::end() {
  for (ChaosProcess& process : processes_) {
    if (process.stopped_until) go_on(process);
  }
  const auto all_are_members = [this] {
    return std::ranges::all_of(processes_, [](const ChaosProcess& process) { return process.is_member; });
  };
  const Time last = now() + kMostToEnd;
  while (problem_.empty() && !all_are_members() && now() < last) {
    pump(now() + milliseconds(50));
  }
  if (problem_.empty() && !all_are_members()) problem_ = "newcomers are not taken in";
  is_over_->store(true);
  while (problem_.empty() && !processes_.empty() && now() < last + kMostToEnd) pump(now() + milliseconds(50));
  if (problem_.empty() && !processes_.empty()) problem_ = "the survivors do not end";
}

}  // namespace qccl::testing
