// The messages between a rank and the process of its test. Each is one packet of a SOCK_SEQPACKET socket, so that a
// signal handler may send between any two instructions of other threads.
//
//   offset 0   1   kind
//   then, for each field:  4 bytes of length in the machine's order, the field
#pragma once

#include <unistd.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qccl::testing {

// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { reset(); }
  int get() const { return fd_; }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

enum class PacketKind : char {
  // from the rank
  hello,     // waits for go
  point,     // name, time; waits for go
  failure,   // is it fatal, file, line, message
  skip,      // code, reason
  finished,  //
  stack,     // thread, addresses
  crash,     // signal, addresses
  state,     // text
  cut,       // connections shut down, time
  set,       // key, value
  get,       // request, key
  add,       // request, key, delta
  // from the test
  go,
  do_cut,
  describe,
  value,  // request, value
};

struct Packet {
  PacketKind kind{};
  std::vector<std::string> fields{};

  long number(std::size_t index) const { return std::stol(fields.at(index)); }
};

// Longer fields are cut. A default socket buffer holds two such fields.
inline constexpr std::size_t kMaxFieldBytes = 64 << 10;

// Returns false if the peer is gone. Thread-safe.
bool send_packet(int channel, PacketKind kind, std::initializer_list<std::string_view> fields = {});
// The next packet; nothing if none is there, or with `wait`, if none can come any more.
std::optional<Packet> receive_packet(int channel, bool wait);

// The two ends of a channel, closed on exec. Throws std::runtime_error.
std::pair<Fd, Fd> make_channel();
// Throws std::runtime_error with the attempted operation and the system's reason.
[[noreturn]] void throw_system_error(const std::string& what);

}  // namespace qccl::testing
