// Which instruction set the kernels run on: the widest that this build has code for and this
// machine runs, unless QCCL_SIMD names another.
#pragma once

#include <string_view>
#include <vector>

namespace qccl::kernels {

// Names that QCCL_SIMD takes here, widest first, for example "avx512vbmi2", "avx512", "avx2", "sse4",
// "scalar". "scalar" is always there: it is the reference that all others equal byte for byte.
std::vector<std::string_view> simd_targets();

// Makes all kernels use `name`; false, without effect, if it is not one of simd_targets(). For tests
// and benchmarks: not while another thread runs kernels.
bool force_simd(std::string_view name);

// Name of the instruction set in use, told by the code that was compiled for it.
const char* simd_target();

// What QCCL_SIMD asks for: `text` itself, or simd_targets().front() with a warning in the log if
// `text` is none of them or empty.
std::string_view accepted_simd(std::string_view text);

}  // namespace qccl::kernels
