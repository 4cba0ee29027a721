// The contract of a transport that sleeps on descriptors. The Router makes one transport of several, which sleeps in
// one call.
//
// An endpoint registers its descriptors with a poller that it shares, under token(index). The poller's owner sleeps
// like this; Endpoint::sleep() does the same for an endpoint used alone:
//
//   if every endpoint's arm() returns true:   for (event : poller.wait(timeout)) its endpoint's ready(event);
//   disarm() for every endpoint that was armed
#pragma once

#include <cstdint>

#include "os/net/poller.h"
#include "transport/transport.h"

namespace qccl {

class Endpoint : public BasicTransport {
 public:
  // `poller` must outlive the endpoint. Endpoints that share one differ in `token_space`.
  Endpoint(os::Poller& poller, std::uint8_t token_space) : poller_(poller), token_space_(token_space) {}

  // Announces that this thread is about to sleep: from now on peers ring, which they do not while it spins. False if
  // something is ready already, so that the caller must not sleep. Call disarm() next in either case.
  virtual bool arm() = 0;
  virtual void disarm() = 0;
  // One of this endpoint's descriptors is ready: handles the event, now or in progress().
  virtual void ready(const os::Poller::Ready& event) = 0;

  void sleep(TimePoint deadline, const Clock& clock) override {
    if (arm()) {
      for (const auto& event : poller_.wait(deadline - clock.now())) {
        if (token_space_of(event.token) == token_space_) ready(event);
      }
    }
    disarm();
  }
  void wake() override { poller_.wake(); }

  std::uint8_t token_space() const { return token_space_; }
  static std::uint8_t token_space_of(std::uint64_t token) { return static_cast<std::uint8_t>(token >> kIndexBits); }

 protected:
  // The poller's token for this endpoint's descriptor `index`, and back.
  std::uint64_t token(std::uint64_t index) const { return std::uint64_t{token_space_} << kIndexBits | index; }
  static std::uint64_t index_of(std::uint64_t token) { return token & ((std::uint64_t{1} << kIndexBits) - 1); }
  os::Poller& poller() { return poller_; }

 private:
  static constexpr int kIndexBits = 56;
  os::Poller& poller_;
  std::uint8_t token_space_;
};

// Token spaces of the endpoints; 255 is the poller's own.
inline constexpr std::uint8_t kShmTokenSpace = 1;
inline constexpr std::uint8_t kTcpTokenSpace = 2;

}  // namespace qccl
