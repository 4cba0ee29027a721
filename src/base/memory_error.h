// Memory that the system refuses, at the edge of the public API: an Error like any other, instead of std::bad_alloc.
#pragma once

#include <new>
#include <utility>

#include "qccl/error.h"

namespace qccl {

// Short enough to need no memory itself.
inline Error memory_error() { return Error({.kind = ErrorKind::resource_exhausted, .message = "QCCL: no memory"}); }

// What `call` returns; throws resource_exhausted where it has no memory.
template <class Call>
decltype(auto) memory_checked(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    throw memory_error();
  }
}

}  // namespace qccl
