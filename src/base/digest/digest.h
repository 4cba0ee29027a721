// 64-bit digests that are the same on every rank: fingerprints of calls, identities of groups.
#pragma once

#include <cstdint>
#include <string_view>

namespace qccl {

// Digest of the bytes, chained on `seed`. Not a cryptographic hash.
std::uint64_t digest(std::string_view bytes, std::uint64_t seed = 0);
// Digest of one number chained on `seed`.
std::uint64_t digest(std::uint64_t number, std::uint64_t seed);

}  // namespace qccl
