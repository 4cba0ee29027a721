#include "errors.h"

#include <c10/util/Exception.h>

#include <string>

namespace qccl::torch_binding {

std::exception_ptr to_torch(const ErrorInfo& error) {
  switch (error.kind) {
    case ErrorKind::invalid_argument: return std::make_exception_ptr(C10_BUILD_ERROR(ValueError, error.message));
    case ErrorKind::unsupported: return std::make_exception_ptr(C10_BUILD_ERROR(NotImplementedError, error.message));
    case ErrorKind::peer_lost:
    case ErrorKind::deadline_exceeded:
    case ErrorKind::corrupt_data: return std::make_exception_ptr(C10_BUILD_ERROR(DistNetworkError, error.message));
    case ErrorKind::misuse:
    case ErrorKind::aborted:
    case ErrorKind::resource_exhausted: break;
  }
  return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, error.message));
}

void throw_not_supported(const char* what) {
  C10_THROW_ERROR(NotImplementedError, std::string("qccl: ") + what + " is not supported by the qccl backend yet");
}

}  // namespace qccl::torch_binding
