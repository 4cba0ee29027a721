// A launcher's hand on another host: starts the host's ranks, passes on what goes in and out of them, and does what the
// launcher says (frames.h). It decides nothing about the job; but when the connection ends, or is silent for too long,
// it kills everything, so that no rank outlives its launcher.
#pragma once

#include "tools/run/local_job.h"
#include "tools/run/remote/frames.h"

namespace qccl::tools {

// Sends ranks' output to the launcher, within the window.
class LauncherOutput : public RankOutput {
 public:
  explicit LauncherOutput(Sink& sink) : sink_(sink) {}
  void take(int rank, Stream stream, std::string_view text) override;
  void end(int rank, Stream stream) override { take(rank, stream, {}); }
  bool has_room(Stream) const override { return window_ > 0; }
  bool is_closed(Stream stream) const override { return closed_[static_cast<std::size_t>(stream)]; }
  void on_taken(std::uint32_t bytes) { window_ += bytes; }
  void close(Stream stream) { closed_[static_cast<std::size_t>(stream)] = true; }

 private:
  Sink& sink_;
  std::int64_t window_ = kWindow;
  bool closed_[2] = {false, false};
};

class Agent : public LocalJob {
 public:
  Agent(const BlockedSignals& signals, pid_t keeper) : LocalJob({}, signals, keeper) {}

 protected:
  std::optional<int> start() override;
  bool is_complete() const override { return has_job_ || !connected_; }
  void want(std::vector<pollfd>& list) const override;
  void serve(const std::vector<pollfd>& list) override;
  Time next_time() const override { return connected_ ? heard_ + silence_limit_ : Time::max(); }
  void on_time(Time now) override;
  void on_end(RankProcess& process, pid_t pid, int status) override;
  void say(const std::string& text) override { send(FrameKind::message, 0, text); }
  void finish() override;

 private:
  void send(FrameKind kind, std::uint32_t number = 0, std::string_view text = {});
  void hear();
  void on_frame(const Frame& frame);
  void start_part(const std::string& text);
  void take_input(const std::string& text);
  void pass_input_on(const std::vector<pollfd>& list);
  void disconnect();

  bool connected_ = true;
  bool has_job_ = false;  // or won't get one
  FrameReader frames_;
  Sink to_launcher_{STDOUT_FILENO};
  LauncherOutput output_{to_launcher_};
  std::optional<Sink> input_;  // of rank 0
  bool input_ended_ = false;
  Time heard_ = Clock::now();
  std::chrono::milliseconds silence_limit_{60'000};
};

}  // namespace qccl::tools
