// The floating-point environment for which results are defined: round to nearest even, denormals are numbers.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace qccl::kernels {

// Sets the default environment of the calling thread and restores the thread's own at the end. On x86 that is only the
// control register of the vector units, which do all arithmetic here: <cfenv> takes ten times as long.
class DefaultFloatEnvironment {
 public:
#if defined(__x86_64__)
  DefaultFloatEnvironment() : saved_(_mm_getcsr()) {
    if ((saved_ & kControl) != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFloatEnvironment() {
    if ((saved_ & kControl) != kDefault) _mm_setcsr(saved_);
  }
#else
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
#endif
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  // All bits except the six flags of exceptions that have happened.
  static constexpr unsigned kControl = 0xffc0;
  static constexpr unsigned kDefault = 0x1f80;
  const unsigned saved_;
#else
  std::fenv_t saved_;
#endif
};

}  // namespace qccl::kernels
