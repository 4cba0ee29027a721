// random.h for the target without vectors: the reference itself.

#include "kernels/lanes/random_reference.h"

namespace qccl::kernels::HWY_NAMESPACE {

inline void random_bytes(const RandomStream& stream, std::size_t n, std::uint8_t* target) {
  for (std::size_t i = 0; i < n; ++i) target[i] = reference::random_byte(stream, stream.first_element + i);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
