// The exception of the public API. The kind says what the caller can do next; the fields name the ranks, the operation
// and the numbers, so that no program has to parse the message.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace qccl {

// What kind of failure it is, named by what the caller does next.
enum class ErrorKind : std::uint8_t {
  invalid_argument,    // a value in this call is wrong: fix the call
  misuse,              // the object cannot take this call now (closed, forked child), or ranks made different calls
  peer_lost,           // another rank died or became unreachable
  deadline_exceeded,   // a rank did not do its part in time
  aborted,             // this group was aborted or poisoned by an earlier failure
  corrupt_data,        // bytes from the network failed validation
  resource_exhausted,  // the operating system refused memory, descriptors or ports: free some, then retry
  unsupported,         // a legal request that this build or machine does not support
};

// The kind's name as messages print it, for example "peer_lost".
const char* to_string(ErrorKind kind);

// Everything known about a failure. Fields that do not apply keep their defaults.
struct ErrorInfo {
  ErrorKind kind = ErrorKind::misuse;
  std::string message;               // complete, readable on its own
  int rank = -1;                     // the rank that reports the failure
  int peer = -1;                     // the rank at fault, if there is one
  std::string operation = {};        // for example "all_reduce"
  std::uint64_t sequence = 0;        // its number in the group, from 1; 0 if none
  std::uint64_t received_bytes = 0;  // received so far
  std::uint64_t expected_bytes = 0;  // needed by the operation
  int os_error = 0;                  // errno, if the system refused something
};

// Thrown by every public call that can fail. Copies share nothing.
class Error : public std::exception {
 public:
  explicit Error(ErrorInfo info) : info_(std::move(info)) {}
  // The message, which is complete; the kind; and all fields.
  const char* what() const noexcept override { return info_.message.c_str(); }
  ErrorKind kind() const noexcept { return info_.kind; }
  const ErrorInfo& info() const noexcept { return info_; }

 private:
  ErrorInfo info_;
};

}  // namespace qccl
