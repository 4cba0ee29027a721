// 64-bit digests that are the same on every rank: fingerprints of calls, identities of groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace qccl {

// Digest of the bytes, chained on `seed`. Not a cryptographic hash.
std::uint64_t digest(std::string_view bytes, std::uint64_t seed = 0);
// Digest of one number chained on `seed`.
std::uint64_t digest(std::uint64_t number, std::uint64_t seed);

#ifdef __x86_64__
// The same digests with instructions that not every machine has. Each is in a file of its own, the only one compiled
// for those instructions, which must contain nothing that the linker could merge with another file's.
std::uint64_t digest_avx2(const void* data, std::size_t bytes, std::uint64_t seed);
std::uint64_t digest_avx512(const void* data, std::size_t bytes, std::uint64_t seed);
#endif

}  // namespace qccl
