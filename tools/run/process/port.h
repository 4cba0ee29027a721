// A free TCP port for a job's rank 0, reserved until its listener takes it.
#pragma once

#include <optional>

#include "tools/run/process/descriptor.h"

namespace qccl::tools {

// Holds a socket that is bound to the port but does not listen. Linux gives such a port to nobody
// who asks for any free one, neither to bind nor to connect from, but lets a listener with
// SO_REUSEADDR (as every server sets it) have it: no moment in which another process can take it.
class ReservedPort {
 public:
  // On 127.0.0.1. Nothing if the system has no port.
  static std::optional<ReservedPort> take();
  int number() const { return number_; }

 private:
  ReservedPort(Descriptor socket, int number) : socket_(std::move(socket)), number_(number) {}
  Descriptor socket_;
  int number_;
};

}  // namespace qccl::tools
