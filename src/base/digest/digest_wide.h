// The digest of base/digest/digest.h with instructions that not every machine has. Each implementation is in a file of
// its own, the only one compiled for those instructions. The file must not contain anything that the linker could merge
// with another file's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl {

#ifdef __x86_64__
std::uint64_t digest_avx2(const void* data, std::size_t bytes, std::uint64_t seed);
std::uint64_t digest_avx512(const void* data, std::size_t bytes, std::uint64_t seed);
#endif

}  // namespace qccl
