// A job on several hosts: this process's own are the connections to them (ssh, or whatever is given in its place), with
// an agent at the other end of each (agent.h). Ranks start when all hosts have answered; the first then chooses
// MASTER_PORT.
#pragma once

#include <set>

#include "tools/run/launcher.h"
#include "tools/run/process/rank_output.h"
#include "tools/run/remote/frames.h"

namespace qccl::tools {

class HostsJob : public Supervisor {
 public:
  HostsJob(const LaunchOptions& options, const BlockedSignals& signals, pid_t keeper);

 protected:
  std::optional<int> start() override;
  void want(std::vector<pollfd>& list) const override;
  void serve(const std::vector<pollfd>& list) override;
  Time next_time() const override;
  void on_time(Time now) override;
  void on_end(RankProcess& process, pid_t pid, int status) override;
  std::vector<int> live_ranks() const override;
  void pass_on(int signal, bool all) override;
  std::chrono::milliseconds kill_all() override;
  void say(const std::string& text) override;
  void finish() override;

 private:
  struct Connection {
    explicit Connection(const HostShare& its_share) : share(its_share) {}
    HostShare share;
    std::optional<Sink> sink;  // to its agent
    FrameReader frames;
    bool greeted = false;
    bool over = false;  // its agent is done, or the connection failed
    Time heard = Clock::now();
    std::set<int> live;      // ranks that run
    std::uint32_t owed = 0;  // bytes of output that it has not yet been given leave for
  };

  std::vector<std::string> command_for(const Host& host) const;
  void send(Connection& connection, FrameKind kind, std::uint32_t number = 0, std::string_view text = {});
  void send_all(FrameKind kind, std::uint32_t number = 0);
  void hear(Connection& connection, int fd);
  void on_frame(Connection& connection, const Frame& frame);
  void take_output(Connection& connection, const Frame& frame);
  void on_rank_end(Connection& connection, const Frame& frame);
  void greet(Connection& connection, const std::string& version);
  void start_part(Connection& connection);
  void start_others(int port);
  void give_up(Connection& connection, int code, const std::string& what);
  void read_input();
  void pay_owed();
  bool reads_input() const;
  const RankProcess& process_of(const Connection& connection) const;

  const LaunchOptions& options_;
  const std::string self_;  // this program, which is expected at the same place on the other hosts
  Console console_;
  std::vector<Connection> connections_;  // a process of the same place each
  int master_port_ = 0;
  bool input_open_;
  std::int64_t input_window_ = kWindow;
  bool hung_up_[2] = {false, false};
  int kills_ = 0;
  Time asked_ = Clock::now();  // when all were last asked whether they are alive
};

inline constexpr int kExitHostLost = 255;  // as ssh's

}  // namespace qccl::tools
