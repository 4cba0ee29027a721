// What a call throws.
#pragma once

#include "qccl/error.h"

namespace qccl::testing {

// Of kind `aborted` and "nothing was thrown" if it does not.
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
