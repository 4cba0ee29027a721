// QCCL_CHECK: for bugs of our own, never for bad input or a bad peer.
#pragma once

namespace qccl {

// Prints the failed condition and its location through the log sink, then aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace qccl

#define QCCL_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::qccl::check_failed(#condition, __FILE__, __LINE__))
