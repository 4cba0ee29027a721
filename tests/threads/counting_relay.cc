#include "threads/counting_relay.h"

#include <array>

#include "base/bytes.h"
#include "os/net/socket.h"

namespace qccl::testing {
namespace {

constexpr std::uint64_t kListener = 0;
constexpr const char* kHost = "127.0.0.1";
constexpr Nanoseconds kPatience = std::chrono::seconds(60);
const SteadyClock kClock;

TimePoint soon() { return kClock.now() + kPatience; }

// Empty if there is nothing now. `ends`: the other side has closed.
std::string received(const os::Fd& socket, bool& ends) {
  std::array<std::byte, 64 * 1024> buffer;
  const os::IoResult got = os::read_some(socket.get(), buffer);
  ends = got.lost();
  return std::string(reinterpret_cast<const char*>(buffer.data()), got.bytes);
}

// To a side that has closed in the meantime, nothing need be sent.
void send(const os::Fd& socket, const std::string& bytes) {
  static_cast<void>(os::write_exactly(socket, std::as_bytes(std::span(bytes)), soon(), kClock));
}

}  // namespace

CountingRelay::CountingRelay(std::uint16_t target, Rewrite rewrite)
    : target_(target),
      rewrite_(std::move(rewrite)),
      listener_(os::listen_tcp(kHost, 0).take_or_throw()),
      port_(os::local_port(listener_).take_or_throw()),
      poller_(os::Poller::create().take_or_throw()) {
  poller_.watch(listener_.get(), kListener).take_or_throw();
  thread_ = std::thread([this] { run(); });
}

CountingRelay::~CountingRelay() {
  ends_ = true;
  poller_.wake();
  thread_.join();
}

void CountingRelay::run() {
  while (!ends_) {
    for (const auto& event : poller_.wait(kPatience)) {
      if (event.token == kListener) {
        accept();
      } else if (const auto from_rank = links_.find(event.token); from_rank != links_.end()) {
        forward_from_rank(from_rank->second);
      } else if (const auto to_rank = links_.find(event.token - 1); to_rank != links_.end()) {
        forward_to_rank(to_rank->second);
      }
    }
    std::erase_if(links_, [](const auto& entry) { return !entry.second.to_rank.valid(); });
  }
}

void CountingRelay::accept() {
  auto socket = os::accept_connection(listener_).take_or_throw();
  if (!socket) return;
  const std::uint64_t token = next_token_;
  next_token_ += 2;
  Link link{std::move(*socket), os::connect_tcp(kHost, target_, soon(), kClock).take_or_throw()};
  os::set_no_delay(link.to_rank).take_or_throw();
  os::set_no_delay(link.to_target).take_or_throw();
  poller_.watch(link.to_rank.get(), token).take_or_throw();
  poller_.watch(link.to_target.get(), token + 1).take_or_throw();
  links_.emplace(token, std::move(link));
  ++round_trips_;
}

void CountingRelay::forward_from_rank(Link& link) {
  bool ends = false;
  const std::string bytes = received(link.to_rank, ends);
  link.rank_awaits_answer |= !bytes.empty();
  send(link.to_target, bytes);
  if (ends) link = {};
}

void CountingRelay::forward_to_rank(Link& link) {
  bool ends = false;
  const std::string bytes = received(link.to_target, ends);
  if (!bytes.empty() && link.rank_awaits_answer) {
    link.rank_awaits_answer = false;
    ++round_trips_;
  }
  send(link.to_rank, rewrite_ ? rewrite_(bytes) : bytes);
  if (ends) link = {};
}

}  // namespace qccl::testing
