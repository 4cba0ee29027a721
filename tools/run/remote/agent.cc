#include "tools/run/remote/agent.h"

#include <fmt/format.h>
#include <qccl/qccl.h>
#include <unistd.h>

namespace qccl::tools {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;

}  // namespace

void LauncherOutput::take(int rank, Stream stream, std::string_view text) {
  const auto kind = stream == Stream::out ? FrameKind::output : FrameKind::errors;
  sink_.append(encode_frame(kind, static_cast<std::uint32_t>(rank), text));
  window_ -= static_cast<std::int64_t>(text.size());
}

std::optional<int> Agent::start() {
  to_launcher_.append(fmt::format("{}{}\n", kGreeting, qccl::version()));
  return std::nullopt;
}

void Agent::send(FrameKind kind, std::uint32_t number, std::string_view text) {
  to_launcher_.append(encode_frame(kind, number, text));
}

// ---- events

void Agent::want(std::vector<pollfd>& list) const {
  if (connected_) list.push_back({STDIN_FILENO, POLLIN, 0});
  to_launcher_.want(list);
  if (input_) input_->want(list);
  pipes_.want(list, output_);
}

void Agent::serve(const std::vector<pollfd>& list) {
  pipes_.serve(list, output_);
  if (connected_ && is_ready(list, STDIN_FILENO)) hear();
  pass_input_on(list);
  to_launcher_.serve(list);
  if (connected_ && to_launcher_.is_closed()) disconnect();
}

void Agent::hear() {
  char bytes[kReadBytes];
  const ssize_t got = ::read(STDIN_FILENO, bytes, sizeof(bytes));
  if (got <= 0) return disconnect();
  heard_ = Clock::now();
  frames_.append({bytes, static_cast<std::size_t>(got)});
  while (auto frame = frames_.next()) on_frame(*frame);
  if (frames_.is_broken()) disconnect();
}

void Agent::on_frame(const Frame& frame) {
  const int number = static_cast<int>(frame.number);
  switch (frame.kind) {
    case FrameKind::job: return start_part(frame.text);
    case FrameKind::signal: has_job_ = has_job_ || asks_to_end(number); return pass_on(number, asks_to_end(number));
    case FrameKind::kill: has_job_ = true; return kill_everything();
    case FrameKind::input: return take_input(frame.text);
    case FrameKind::taken: return output_.on_taken(frame.number);
    case FrameKind::hang_up: return output_.close(number == 0 ? Stream::out : Stream::err);
    case FrameKind::alive: return send(FrameKind::alive);
    default: return disconnect();  // an agent's own
  }
}

void Agent::on_time(Time now) {
  if (connected_ && now >= heard_ + silence_limit_) disconnect();
}

void Agent::disconnect() {
  connected_ = false;
  to_launcher_.close();
  kill_everything();
}

// ---- ranks

void Agent::start_part(const std::string& text) {
  auto part = decode_job_part(text);
  if (!part || has_job_) return disconnect();
  has_job_ = true;
  set_grace(part->grace);
  silence_limit_ = part->host_timeout;
  if (const auto refused = start_ranks(*part, {.pipe_output = true, .first_input = Input::pipe})) {
    return send(FrameKind::refused, static_cast<std::uint32_t>(refused->exit_code), refused->message);
  }
  if (part->first_rank == 0) input_.emplace(processes_.front().input.get());
  send(FrameKind::port, static_cast<std::uint32_t>(part->master_port));
}

void Agent::take_input(const std::string& text) {
  if (text.empty()) input_ended_ = true;
  if (input_) input_->append(text);
}

void Agent::pass_input_on(const std::vector<pollfd>& list) {
  if (!input_) return;
  if (const std::size_t written = input_->serve(list); written > 0) {
    send(FrameKind::taken, static_cast<std::uint32_t>(written));
  }
  if (!input_->is_closed() && (!input_ended_ || input_->has_pending())) return;
  input_.reset();
  processes_.front().input.reset();
}

void Agent::on_end(RankProcess& process, pid_t pid, int status) {
  send(FrameKind::ended, static_cast<std::uint32_t>(process.rank), fmt::format("{} {}", pid, status));
}

void Agent::finish() {
  pipes_.finish(output_);
  send(FrameKind::done);
  to_launcher_.write_all(static_cast<int>(silence_limit_.count()));
}

}  // namespace qccl::tools
