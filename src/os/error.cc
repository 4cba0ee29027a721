#include "os/error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

namespace qccl::os {

namespace {

ErrorKind kind_of(int error_number) {
  switch (error_number) {
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case ENOTCONN:
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN: return ErrorKind::peer_lost;
    case ETIMEDOUT: return ErrorKind::deadline_exceeded;
    case EINVAL:
    case EADDRNOTAVAIL: return ErrorKind::invalid_argument;
    case EAFNOSUPPORT:
    case EPROTONOSUPPORT:
    case EOPNOTSUPP:
    case ENOSYS: return ErrorKind::unsupported;
    case EBADF: return ErrorKind::misuse;
    default: return ErrorKind::resource_exhausted;
  }
}

}  // namespace

std::string error_text(int error_number) {
  const char* words = ::strerrordesc_np(error_number);
  return fmt::format("{} (errno {})", words != nullptr ? words : "unknown error", error_number);
}

Failure os_failure(const std::string& what, int error_number) {
  return os_failure(kind_of(error_number), what, error_number);
}

Failure os_failure(ErrorKind kind, const std::string& what, int error_number) {
  Failure failure(kind, what + ": " + error_text(error_number));
  failure.info().os_error = error_number;
  return failure;
}

}  // namespace qccl::os
