// Errors of QCCL as NCCL's results, with the sentence that ncclGetLastError() returns.
#pragma once

#include <exception>
#include <string>

#include "process.h"

namespace qccl::nccl {

[[noreturn]] void refuse_argument(const std::string& message);  // ncclInvalidArgument
[[noreturn]] void refuse_usage(const std::string& message);     // ncclInvalidUsage

// peer_lost: ncclRemoteError. invalid_argument: ncclInvalidArgument. misuse and unsupported: ncclInvalidUsage. All
// others, deadlines for example: ncclSystemError.
ncclResult_t result_of(ErrorKind kind);

// Keeps the exception's sentence and returns its result. Inside a group, ncclGroupEnd() will return it too.
ncclResult_t report(const std::exception& error);

// What every function of the interface runs in: exceptions become results.
template <class Call>
ncclResult_t guarded(Call&& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    return report(error);
  }
}

}  // namespace qccl::nccl
