// The digest of base/digest/digest.h by instructions that not every machine has. Each stands in a file of its own that
// alone is compiled for them, and that holds nothing which the linker could take for another file's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl {

#ifdef __x86_64__
std::uint64_t digest_avx2(const void* data, std::size_t bytes, std::uint64_t seed);
std::uint64_t digest_avx512(const void* data, std::size_t bytes, std::uint64_t seed);
#endif

}  // namespace qccl
