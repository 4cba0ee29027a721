// What the library sees of this process and machine, for people: `qccl doctor` prints it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qccl/communicator.h"

namespace qccl {

struct Finding {
  // fact: as it is. warning: works, but slower or less than it could. broken: init() or later calls will fail.
  enum class Level : std::uint8_t { fact, warning, broken };

  Level level = Level::fact;
  std::string topic;     // "rank", "cores", "interfaces", ...
  std::string text;      // complete
  std::string remedy{};  // what to do; empty for facts
};

// Looks at what init(options) would take and use: rank and rendezvous, settings, cores, instruction set, network
// interfaces, shared memory, limits and system settings. Talks to nobody and changes nothing; takes milliseconds.
// What is wrong is a finding, not an exception.
std::vector<Finding> diagnose(const InitOptions& options = {});

}  // namespace qccl
