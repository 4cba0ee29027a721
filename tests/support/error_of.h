// The error that a call throws.
#pragma once

#include "qccl/error.h"

namespace qccl::testing {

// Returns an error of kind `aborted` with "nothing was thrown" if the call does not throw.
template <class Call>
ErrorInfo error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.info();
  }
  return {.kind = ErrorKind::aborted, .message = "nothing was thrown"};
}

}  // namespace qccl::testing
