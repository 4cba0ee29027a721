#include "rank_process.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "stacks.h"

namespace qccl::testing {
namespace {

// Forwards GoogleTest's results of this process to the test's process.
class Recorder final : public ::testing::EmptyTestEventListener {
 public:
  explicit Recorder(Rank::Process& process) : process_(process) {}

 private:
  void OnTestPartResult(const ::testing::TestPartResult& part) override {
    if (part.skipped()) {
      process_.report_skip(Skip::other, part.message());
    } else if (part.failed()) {
      process_.report_failure(part.fatally_failed(), part.file_name(), part.line_number(), part.message());
    }
  }

  Rank::Process& process_;
};

// A store whose keys and values are in the test's process.
class TestStore final : public Store {
 public:
  explicit TestStore(Rank::Process& process) : process_(process) {}

  void set(const std::string& key, const std::string& value) override { process_.tell(PacketKind::set, {key, value}); }
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    return process_.ask(PacketKind::get, key, "", timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override {
    const auto sum = process_.ask(PacketKind::add, key, std::to_string(delta), process_.options().deadline);
    if (!sum) throw Error({.kind = ErrorKind::peer_lost, .message = "the store in the test's process does not answer"});
    return std::stoll(*sum);
  }

 private:
  Rank::Process& process_;
};

std::string now() { return std::to_string(std::chrono::steady_clock::now().time_since_epoch().count()); }

void write_state(const Communicator& comm, std::ostream& text) {
  text << "    group '" << comm.name() << "': ";
  try {
    text << comm.describe() << "\n";
    for (const std::string& operation : comm.in_flight()) text << "      in flight: " << operation << "\n";
  } catch (const Error& error) {
    text << error.what() << "\n";
  }
}

bool is_connected_stream(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
  sockaddr_storage peer{};
  size = sizeof(peer);
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

}  // namespace

Rank::Process::Process(int rank, const JobOptions& options, Fd channel)
    : rank_(rank), options_(options), channel_(std::move(channel)) {}

void Rank::Process::run(const std::function<void(Rank&)>& body) {
  install_stack_handlers(channel_.get());
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new Recorder(*this));
  std::thread([this] { listen(); }).detach();
  tell(PacketKind::hello, {});
  wait_for_go();
  Rank rank(*this);
  try {
    body(rank);
  } catch (const SkipRank&) {
  } catch (const Error& error) {
    report_failure(true, nullptr, -1, std::string("threw ") + to_string(error.kind()) + ": " + error.what());
  } catch (const std::exception& error) {
    report_failure(true, nullptr, -1, std::string("threw: ") + error.what());
  } catch (...) {
    report_failure(true, nullptr, -1, "threw something that is no std::exception");
  }
  std::vector<Communicator> watched;
  {
    const std::lock_guard lock(mutex_);
    watched.swap(watched_);
  }
  watched.clear();
  tell(PacketKind::finished, {});
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(end_code());
}

int Rank::Process::end_code() {
  const std::lock_guard lock(mutex_);
  if (failed_) return kFailedExitCode;
  return skip_ ? static_cast<int>(*skip_) : 0;
}

std::shared_ptr<Store> Rank::Process::store() { return std::make_shared<TestStore>(*this); }

void Rank::Process::watch(const Communicator& comm) {
  const std::lock_guard lock(mutex_);
  watched_.push_back(comm);
}

void Rank::Process::point(const std::string& name) {
  tell(PacketKind::point, {name, now()});
  wait_for_go();
}

void Rank::Process::report_failure(bool fatal, const char* file, int line, const std::string& message) {
  const std::lock_guard lock(mutex_);
  failed_ = true;
  tell(PacketKind::failure, {fatal ? "1" : "0", file == nullptr ? "" : file, std::to_string(line), message});
}

void Rank::Process::report_skip(Skip skip, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  skip_ = skip;
  tell(PacketKind::skip, {std::to_string(static_cast<int>(skip)), reason});
}

std::optional<std::string> Rank::Process::ask(PacketKind kind, const std::string& key, const std::string& more,
                                              std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const long request = ++requests_;
  tell(kind, {std::to_string(request), key, more});
  if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(request); })) return std::nullopt;
  return std::move(values_.extract(request).mapped());
}

void Rank::Process::wait_for_go() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return gos_ > 0; });
  --gos_;
}

void Rank::Process::listen() {
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::pthread_setname_np(::pthread_self(), kListenerName);
  while (const auto packet = receive_packet(channel_.get(), true)) on_packet(*packet);
}

void Rank::Process::on_packet(const Packet& packet) {
  switch (packet.kind) {
    case PacketKind::do_cut: return cut_connections();
    case PacketKind::describe: return describe();
    default: break;
  }
  const std::lock_guard lock(mutex_);
  if (packet.kind == PacketKind::go) ++gos_;
  if (packet.kind == PacketKind::value) values_[packet.number(0)] = packet.fields.at(1);
  changed_.notify_all();
}

// The channel to the test is not a stream socket, so it stays open.
void Rank::Process::cut_connections() {
  int count = 0;
  const long limit = ::sysconf(_SC_OPEN_MAX);
  for (int fd = 0; fd < std::min(limit, 65536L); ++fd) {
    if (is_connected_stream(fd) && ::shutdown(fd, SHUT_RDWR) == 0) ++count;
  }
  tell(PacketKind::cut, {std::to_string(count), now()});
}

void Rank::Process::describe() {
  std::vector<Communicator> watched;
  {
    const std::lock_guard lock(mutex_);
    watched = watched_;
  }
  std::ostringstream text;
  for (const Communicator& comm : watched) write_state(comm, text);
  tell(PacketKind::state, {text.str()});
}

}  // namespace qccl::testing
