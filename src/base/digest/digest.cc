#include "base/digest/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace qccl {
namespace {

constexpr std::size_t kShortBytes = 1024;  // from here on wide instructions pay off

std::uint64_t digest_narrow(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

// The widest implementation that this machine can run.
auto choose_digest() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return digest_avx512;
  if (__builtin_cpu_supports("avx2")) return digest_avx2;
#endif
  return digest_narrow;
}

}  // namespace

std::uint64_t digest(std::string_view bytes, std::uint64_t seed) {
  if (bytes.size() <= kShortBytes) return digest_narrow(bytes.data(), bytes.size(), seed);
  static const auto digest_long = choose_digest();
  return digest_long(bytes.data(), bytes.size(), seed);
}

std::uint64_t digest(std::uint64_t number, std::uint64_t seed) { return digest_narrow(&number, sizeof(number), seed); }

}  // namespace qccl
