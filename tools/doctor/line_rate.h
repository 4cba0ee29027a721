// Measures the lines between the hosts of a job: the round trip, and what one and four TCP connections carry. It uses
// plain sockets of its own, so QCCL's window, codecs and number of connections have no part in the result.
#pragma once

#include <qccl/qccl.h>

#include <string>

namespace qccl::tools {

struct LineReport {
  std::string lines;       // what this rank measured, a line for each pair
  std::string complaints;  // warnings with their remedies
};

// Measures both ways between the first ranks of each two hosts, of at most eight hosts; pairs of different hosts at the
// same time. Collective. A measurement that fails is a complaint of its sender; every wait has a deadline. Throws
// qccl::Error where a collective fails.
LineReport measure_lines(Communicator& world);

}  // namespace qccl::tools
