#include "base/digest/digest.h"

#ifdef __x86_64__
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace qccl {

std::uint64_t digest_avx2(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

}  // namespace qccl
#endif
