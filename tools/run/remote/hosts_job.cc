#include "tools/run/remote/hosts_job.h"

#include <fmt/format.h>
#include <qccl/qccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "tools/run/process/process_tree.h"

namespace qccl::tools {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr std::chrono::milliseconds kKillConfirmed{2000};  // for agents to say that they have done it
constexpr std::chrono::milliseconds kKillAgain{50};

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

HostsJob::HostsJob(const LaunchOptions& options, const BlockedSignals& signals, pid_t keeper)
    : Supervisor(options.limits, signals, keeper),
      options_(options),
      self_(std::filesystem::read_symlink("/proc/self/exe").string()),
      console_(options.tag_output),
      // From a terminal only a process of its foreground group can read, which this one is not.
      input_open_(::isatty(STDIN_FILENO) == 0) {}

// ---- start

std::vector<std::string> HostsJob::command_for(const Host& host) const {
  if (is_this_host(host.name)) return {self_, "run", "--agent"};
  std::vector<std::string> command = options_.ssh;
  command.push_back(host.name);
  command.push_back(fmt::format("exec {} run --agent", quoted(self_)));
  return command;
}

std::optional<int> HostsJob::start() {
  if (!options_.log_folder.empty()) {
    if (const auto refused = console_.open_logs(options_.log_folder, options_.part.world)) {
      say(*refused);
      return 1;
    }
  }
  for (const HostShare& share : options_.hosts) {
    RankSpec spec;
    spec.rank = static_cast<int>(connections_.size());
    spec.command = command_for(share.host);
    spec.input = Input::pipe;
    spec.pipe_output = true;
    if (const auto refused = start_process(spec)) {
      say(refused->message);
      kill_descendants(kKillConfirmed);
      return refused->exit_code;
    }
    connections_.emplace_back(share).sink.emplace(processes_.back().input.get());
  }
  return std::nullopt;
}

void HostsJob::greet(Connection& connection, const std::string& version) {
  if (version != qccl::version()) {
    return give_up(connection, 1,
                   fmt::format("host {} ({}) has qccl {}, but this one {}", connection.share.host.name,
                               connection.share.host.where, version, qccl::version()));
  }
  connection.greeted = true;
  connection.heard = Clock::now();
  const bool all_there =
      std::all_of(connections_.begin(), connections_.end(), [](const Connection& each) { return each.greeted; });
  if (all_there && !was_told_to_end()) start_part(connections_.front());
}

void HostsJob::start_part(Connection& connection) {
  JobPart part = options_.part;
  part.first_rank = connection.share.first_rank;
  part.ranks = connection.share.ranks;
  part.master_port = master_port_;
  part.grace = options_.limits.grace;
  part.host_timeout = options_.host_timeout;
  for (int i = 0; i < part.ranks; ++i) connection.live.insert(part.first_rank + i);
  send(connection, FrameKind::job, 0, encode_job_part(part));
}

// The first host has started its ranks.
void HostsJob::start_others(int port) {
  master_port_ = port;
  if (!input_open_) send(connections_.front(), FrameKind::input);
  if (was_told_to_end()) return;
  for (std::size_t i = 1; i < connections_.size(); ++i) start_part(connections_[i]);
}

// ---- events

const RankProcess& HostsJob::process_of(const Connection& connection) const {
  return processes_[static_cast<std::size_t>(&connection - connections_.data())];
}

bool HostsJob::reads_input() const { return input_open_ && master_port_ != 0 && input_window_ > 0; }

void HostsJob::want(std::vector<pollfd>& list) const {
  for (const Connection& connection : connections_) {
    const RankProcess& process = process_of(connection);
    if (process.output.valid()) list.push_back({process.output.get(), POLLIN, 0});
    connection.sink->want(list);
  }
  if (reads_input()) list.push_back({STDIN_FILENO, POLLIN, 0});
  console_.want(list);
}

void HostsJob::serve(const std::vector<pollfd>& list) {
  for (Connection& connection : connections_) {
    const int fd = process_of(connection).output.get();
    if (fd >= 0 && is_ready(list, fd)) hear(connection, fd);
    connection.sink->serve(list);
  }
  if (reads_input() && is_ready(list, STDIN_FILENO)) read_input();
  console_.serve(list);
  pay_owed();
}

// Reads once.
void HostsJob::hear(Connection& connection, int fd) {
  char bytes[kReadBytes];
  const ssize_t got = ::read(fd, bytes, sizeof(bytes));
  if (got <= 0) {
    if (got == 0) processes_[static_cast<std::size_t>(&connection - connections_.data())].output.reset();
    return;
  }
  if (connection.greeted) connection.heard = Clock::now();
  connection.frames.append({bytes, static_cast<std::size_t>(got)});
  if (!connection.greeted && !connection.over) {
    if (const auto version = connection.frames.greeting()) greet(connection, *version);
  }
  while (connection.greeted && !connection.over) {
    const auto frame = connection.frames.next();
    if (!frame) break;
    on_frame(connection, *frame);
  }
  if (connection.frames.is_broken()) {
    give_up(connection, kExitHostLost, fmt::format("host {} sends what is no frame", connection.share.host.name));
  }
}

void HostsJob::on_frame(Connection& connection, const Frame& frame) {
  const std::string& name = connection.share.host.name;
  const int number = static_cast<int>(frame.number);
  switch (frame.kind) {
    case FrameKind::port:
      if (&connection == &connections_.front()) start_others(number);
      return;
    case FrameKind::refused:
      connection.live.clear();
      return record_failure(number, fmt::format("host {}: {}", name, frame.text));
    case FrameKind::output:
    case FrameKind::errors: return take_output(connection, frame);
    case FrameKind::ended: return on_rank_end(connection, frame);
    case FrameKind::message: return say(fmt::format("host {}: {}", name, frame.text));
    case FrameKind::taken: input_window_ += frame.number; return;
    case FrameKind::done: connection.over = true; return;
    default: return;
  }
}

void HostsJob::take_output(Connection& connection, const Frame& frame) {
  const Stream stream = frame.kind == FrameKind::output ? Stream::out : Stream::err;
  const int rank = static_cast<int>(frame.number);
  if (frame.text.empty()) return console_.end(rank, stream);
  console_.take(rank, stream, frame.text);
  connection.owed += static_cast<std::uint32_t>(frame.text.size());
}

void HostsJob::on_rank_end(Connection& connection, const Frame& frame) {
  long pid = 0;
  int status = 0;
  std::sscanf(frame.text.c_str(), "%ld %d", &pid, &status);
  const int rank = static_cast<int>(frame.number);
  connection.live.erase(rank);
  if (const int code = exit_code_of(status); code != 0) {
    record_failure(
        code, fmt::format("rank {} (pid {} on {}) {}", rank, pid, connection.share.host.name, what_happened(status)));
  }
}

// Leave for as much output as has been passed on, while who reads it keeps up.
void HostsJob::pay_owed() {
  const bool keeps_up = console_.has_room(Stream::out) && console_.has_room(Stream::err);
  for (Connection& connection : connections_) {
    if (keeps_up && connection.owed > 0) send(connection, FrameKind::taken, std::exchange(connection.owed, 0));
  }
  for (const Stream stream : {Stream::out, Stream::err}) {
    bool& told = hung_up_[static_cast<std::size_t>(stream)];
    if (console_.is_closed(stream) && !std::exchange(told, true)) {
      send_all(FrameKind::hang_up, static_cast<std::uint32_t>(stream));
    }
  }
}

void HostsJob::read_input() {
  char bytes[kReadBytes];
  const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof(bytes));
  input_open_ = got > 0;
  const auto size = static_cast<std::size_t>(std::max<ssize_t>(0, got));
  send(connections_.front(), FrameKind::input, 0, {bytes, size});
  input_window_ -= static_cast<std::int64_t>(size);
}

// ---- hosts that are lost

Supervisor::Time HostsJob::next_time() const {
  Time next = asked_ + options_.host_timeout / 4;
  for (const Connection& connection : connections_) {
    if (!connection.over) next = std::min(next, connection.heard + options_.host_timeout);
  }
  return next;
}

void HostsJob::on_time(Time now) {
  if (now >= asked_ + options_.host_timeout / 4) {
    asked_ = now;
    send_all(FrameKind::alive);
  }
  for (Connection& connection : connections_) {
    if (connection.over || now < connection.heard + options_.host_timeout) continue;
    const char* what = connection.greeted ? "nothing was heard of" : "there was no answer from";
    give_up(connection, kExitHostLost,
            fmt::format("{} host {} ({}) for {:g} s", what, connection.share.host.name, connection.share.host.where,
                        std::chrono::duration<double>(options_.host_timeout).count()));
  }
}

// Cuts the connection: its agent, should there still be one, then kills its ranks.
void HostsJob::give_up(Connection& connection, int code, const std::string& what) {
  if (std::exchange(connection.over, true)) return;
  connection.live.clear();
  const RankProcess& process = process_of(connection);
  if (process.pid > 0) ::kill(-process.pid, SIGKILL);
  record_failure(code, what);
}

void HostsJob::on_end(RankProcess& process, pid_t, int status) {
  Connection& connection = connections_[static_cast<std::size_t>(process.rank)];
  // What is left in the pipe; a process that has left the connection's may hold it open.
  for (std::size_t rounds = 0; process.output.valid() && rounds < 64; ++rounds) hear(connection, process.output.get());
  process.output.reset();
  connection.sink->close();
  if (connection.over) return;
  const Host& host = connection.share.host;
  const std::string via = is_this_host(host.name) ? self_ : options_.ssh.front();
  if (connection.greeted) {
    return give_up(connection, kExitHostLost,
                   fmt::format("lost host {} ({}): {} {}", host.name, host.where, via, what_happened(status)));
  }
  give_up(connection, kExitHostLost,
          fmt::format("can't start ranks on host {} ({}): {} {}; check that it runs '{} version' there", host.name,
                      host.where, via, what_happened(status), self_));
}

// ---- ending

void HostsJob::send(Connection& connection, FrameKind kind, std::uint32_t number, std::string_view text) {
  if (!connection.over) connection.sink->append(encode_frame(kind, number, text));
}

void HostsJob::send_all(FrameKind kind, std::uint32_t number) {
  for (Connection& connection : connections_) send(connection, kind, number);
}

std::vector<int> HostsJob::live_ranks() const {
  std::vector<int> live;
  for (const Connection& connection : connections_) {
    live.insert(live.end(), connection.live.begin(), connection.live.end());
  }
  return live;
}

void HostsJob::pass_on(int signal, bool all) {
  if (all && master_port_ == 0) fail_with(kExitSignalBase + signal);  // no rank will say how it ended
  send_all(FrameKind::signal, static_cast<std::uint32_t>(signal));
  if (all && !is_running()) signal_descendants(signal);
}

std::chrono::milliseconds HostsJob::kill_all() {
  if (kills_++ == 0) {
    send_all(FrameKind::kill);
    return kKillConfirmed;
  }
  signal_processes(SIGKILL);
  for (const pid_t pid : descendants()) ::kill(pid, SIGKILL);
  return kKillAgain;
}

void HostsJob::say(const std::string& text) { console_.add_message(fmt::format("{}: {}\n", options_.program, text)); }

void HostsJob::finish() { console_.finish(); }

}  // namespace qccl::tools
