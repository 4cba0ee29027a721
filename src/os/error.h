// Turns the operating system's error numbers into failures that say what was tried and why it did not work. Only src/os
// knows errno; all other code sees text and ErrorInfo::os_error.
#pragma once

#include <string>

#include "base/result.h"

namespace qccl::os {

// "Connection refused (errno 111)".
std::string error_text(int error_number);

// `what` is a sentence without its end, such as "can't listen on 10.0.0.1:29500". The failure reads "what: error text"
// and carries the number. Its kind is the one that a caller can react to: refused, reset or unreachable is peer_lost;
// too many descriptors, no memory or a taken port is resource_exhausted; and so on.
Failure os_failure(const std::string& what, int error_number);
Failure os_failure(ErrorKind kind, const std::string& what, int error_number);

}  // namespace qccl::os
