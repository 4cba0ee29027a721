// A free TCP port for a job's rank 0, reserved until its listener takes it.
#pragma once

#include <optional>

#include "tools/run/process/descriptor.h"

namespace qccl::tools {

// Holds a socket that is bound to the port but does not listen. Linux does not hand out such a port
// to a process that asks for any free port, neither for bind nor for connect. It does give the port
// to a listener with SO_REUSEADDR (as every server sets it). So no other process can take the port
// in between.
class ReservedPort {
 public:
  // Takes a port on 127.0.0.1; nothing if the system has none.
  static std::optional<ReservedPort> take();
  int number() const { return number_; }

 private:
  ReservedPort(Descriptor socket, int number) : socket_(std::move(socket)), number_(number) {}
  Descriptor socket_;
  int number_;
};

}  // namespace qccl::tools
