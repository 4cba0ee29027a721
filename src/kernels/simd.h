// The instruction set of the kernels: the widest that this build has code for and this machine can run, unless
// QCCL_SIMD names another.
#pragma once

#include <string_view>
#include <vector>

namespace qccl::kernels {

// Names that QCCL_SIMD accepts here, widest first, for example "avx512vbmi2", "avx512", "avx2", "sse4", "scalar".
// "scalar" is always available: it is the reference that all others equal byte for byte.
std::vector<std::string_view> simd_targets();

// Makes all kernels use `name`; false, without effect, if it is not one of simd_targets(). For tests
// and benchmarks: not while another thread runs kernels.
bool force_simd(std::string_view name);

// Name of the instruction set in use, as reported by the code that was compiled for it.
const char* simd_target();

// The instruction set for QCCL_SIMD=`text`: `text` itself, or simd_targets().front() with a warning in the log if
// `text` is empty or unknown.
std::string_view accepted_simd(std::string_view text);

}  // namespace qccl::kernels
