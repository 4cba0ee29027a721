// Findings about this process and machine, for people: `qccl doctor` prints them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qccl/communicator.h"

namespace qccl {

// A fact, or a problem with its remedy.
struct Finding {
  // fact: information. warning: works, but slower or with less than it could. broken: init() or later calls will fail.
  enum class Level : std::uint8_t { fact, warning, broken };

  Level level = Level::fact;  // how serious it is
  std::string topic;          // "rank", "cores", "interfaces", ...
  std::string text;           // complete
  std::string remedy{};       // what to do; empty for facts
};

// Reports what init(options) would use: rank and meeting point, settings, cores, instruction set, network interfaces,
// shared memory, limits, system settings and devices. Contacts no peer and changes nothing; takes milliseconds, more
// where it loads a GPU's driver. Reports problems as findings and never throws for them.
std::vector<Finding> diagnose(const InitOptions& options = {});

}  // namespace qccl
