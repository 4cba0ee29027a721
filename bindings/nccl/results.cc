#include "results.h"

#include "communicator.h"

namespace qccl::nccl {

void refuse_argument(const std::string& message) {
  throw Error({.kind = ErrorKind::invalid_argument, .message = "QCCL: " + message});
}

void refuse_usage(const std::string& message) {
  throw Error({.kind = ErrorKind::unsupported, .message = "QCCL: " + message});
}

ncclResult_t result_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument: return ncclInvalidArgument;
    case ErrorKind::misuse:
    case ErrorKind::unsupported: return ncclInvalidUsage;
    case ErrorKind::peer_lost: return ncclRemoteError;
    case ErrorKind::deadline_exceeded:
    case ErrorKind::aborted:
    case ErrorKind::corrupt_data:
    case ErrorKind::resource_exhausted: return ncclSystemError;
  }
  return ncclInternalError;
}

ncclResult_t report(const std::exception& error) {
  const auto* const own = dynamic_cast<const Error*>(&error);
  const ncclResult_t result = own == nullptr ? ncclSystemError : result_of(own->kind());
  Thread& thread = this_thread();
  thread.last_error = error.what();
  if (thread.depth > 0 && thread.failure == ncclSuccess) thread.failure = result;
  const std::lock_guard lock(process().mutex);
  process().last_error = thread.last_error;
  return result;
}

}  // namespace qccl::nccl

using namespace qccl::nccl;

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled CUDA error";
    case ncclSystemError: return "system error, deadline or abort; ncclGetLastError() says which";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage, or a call that QCCL does not serve";
    case ncclRemoteError: return "a remote process was lost";
    case ncclInProgress: return "the operation is in progress";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  std::string& text = this_thread().last_error;
  try {
    if (comm != nullptr) {
      const std::string own = find(comm)->last_error();
      if (!own.empty()) text = own;
    }
    const std::lock_guard lock(process().mutex);
    if (text.empty()) text = process().last_error;
  } catch (const std::exception&) {
    // An unknown handle, or no memory: what this thread knows is all there is.
  }
  return text.c_str();
}
