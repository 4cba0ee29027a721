// onebit.h for the target without vectors: the reference itself.

#include <algorithm>

#include "kernels/onebit/onebit_reference.h"

namespace qccl::kernels::HWY_NAMESPACE {

double onebit_pack(const float* input, std::size_t inputs, float* error, std::size_t n, std::byte* signs) {
  double total = 0;
  for (std::size_t begin = 0; begin < n; begin += reference::kSquareBlock) {
    reference::SquareSum sum;
    reference::onebit_pack(input, inputs, error, begin, std::min(n, begin + reference::kSquareBlock), signs, sum);
    total += sum.total();
  }
  return reference::canonical(total);
}

void onebit_subtract(float scale, float* values, std::size_t n) { reference::onebit_subtract(scale, values, 0, n); }

double onebit_sum(const SignedPart* parts, std::size_t part_count, float* error, std::size_t n, std::byte* signs) {
  double total = 0;
  for (std::size_t begin = 0; begin < n; begin += reference::kSquareBlock) {
    reference::SquareSum sum;
    const std::size_t end = std::min(n, begin + reference::kSquareBlock);
    reference::onebit_sum(parts, part_count, error, begin, end, signs, sum);
    total += sum.total();
  }
  return reference::canonical(total);
}

void onebit_expand(SignedPart part, float* target, std::size_t n, bool) {
  reference::onebit_expand(part, target, 0, n);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
