#include "base/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace qccl {

std::uint64_t digest(std::string_view bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t digest(std::uint64_t number, std::uint64_t seed) {
  return XXH3_64bits_withSeed(&number, sizeof(number), seed);
}

}  // namespace qccl
