// Turns std::bad_alloc into an Error, at the edge of the public API.
#pragma once

#include <new>
#include <utility>

#include "qccl/error.h"

namespace qccl {

// Short enough to need no allocation itself.
inline Error memory_error() { return Error({.kind = ErrorKind::resource_exhausted, .message = "QCCL: no memory"}); }

// The result of `call`; throws resource_exhausted if it runs out of memory.
template <class Call>
decltype(auto) memory_checked(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    throw memory_error();
  }
}

}  // namespace qccl
