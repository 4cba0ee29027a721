#include "errors.h"

#include <c10/util/Exception.h>

#include <string>

namespace qccl::torch_binding {
namespace {

// torch's own programs look for the word "timeout" in the exceptions they catch.
constexpr const char* kWhichTimeout =
    ". The timeout of a call is its own, else the one of its process group, else QCCL_TIMEOUT";

}  // namespace

std::exception_ptr to_torch(const ErrorInfo& error) {
  switch (error.kind) {
    case ErrorKind::invalid_argument: return std::make_exception_ptr(C10_BUILD_ERROR(ValueError, error.message));
    case ErrorKind::unsupported: return std::make_exception_ptr(C10_BUILD_ERROR(NotImplementedError, error.message));
    case ErrorKind::deadline_exceeded:
      return std::make_exception_ptr(C10_BUILD_ERROR(DistNetworkError, error.message + kWhichTimeout));
    case ErrorKind::peer_lost:
    case ErrorKind::corrupt_data: return std::make_exception_ptr(C10_BUILD_ERROR(DistNetworkError, error.message));
    case ErrorKind::misuse:
    case ErrorKind::aborted:
    case ErrorKind::resource_exhausted: break;
  }
  return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, error.message));
}

}  // namespace qccl::torch_binding
