// Element-wise arithmetic of reductions: pure functions over arrays, dispatched at run time to
// the widest instruction set (QCCL_SIMD=scalar|avx2|avx512|... forces one), the same bytes on all.
//
// Any alignment, any n, including 0. `target` may be `a` or `b` or overlap neither. NaN results
// are canonical (0x7FC00000, or the type's own equivalent). Integers wrap around.
// min and max: NaN wins, -0 < +0. Booleans are bytes that are 0 or not; results are 0 or 1.
// float16 and bfloat16 are widened exactly and rounded to nearest even once, in narrow().
#pragma once

#include <cstddef>

#include "qccl/types.h"

namespace qccl::kernels {

// target[i] = a[i] op b[i] in the type itself, for every type but float16 and bfloat16 and every operation it
// supports(). avg and premul_sum add, like sum: see divide() and scale().
void reduce(DataType type, ReduceOp op, void* target, const void* a, const void* b, std::size_t n);

// target[i] = source[i] as float; for float16 and bfloat16.
void widen(DataType type, float* target, const void* source, std::size_t n);
// target[i] = a[i] op float(b[i]); b of float16 or bfloat16.
void reduce_widened(DataType type, ReduceOp op, float* target, const float* a, const void* b, std::size_t n);
// target[i] = source[i] rounded to nearest even; for float16 and bfloat16.
void narrow(DataType type, void* target, const float* source, std::size_t n);

// Like widen() and narrow(), for data that is only moved: NaN keeps its sign and payload. A NaN of 16 bits becomes the
// NaN of float32 with the payload in the upper mantissa bits, and the reverse (a NaN without a payload there gets the
// quiet bit, so that it stays a NaN). All 65536 values come back unchanged.
void widen_exactly(DataType type, float* target, const void* source, std::size_t n);
void narrow_exactly(DataType type, void* target, const float* source, std::size_t n);

// data[i] /= divisor, for float32 and float64 (true division, so every rank rounds alike).
void divide(DataType type, void* data, double divisor, std::size_t n);

// target[i] = source[i] * factor, for floating types: in fp32 (float64: in double), rounded to the type.
void scale(DataType type, void* target, const void* source, double factor, std::size_t n);

// residual[i] = (value[i] - sent[i]) * factor. Leaves residual[i] unchanged where the result is not finite. Any
// alignment, any n; the arrays do not overlap, but `sent` may be `value`.
void keep_residual(const float* value, const float* sent, float factor, float* residual, std::size_t n);

}  // namespace qccl::kernels
