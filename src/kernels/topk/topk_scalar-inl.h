// topk.h for the target without vectors: the reference itself.

#include "kernels/topk/topk_reference.h"

namespace qccl::kernels::HWY_NAMESPACE {

void topk_encode(TopkFormat format, const float* source, std::size_t n, std::byte* target) {
  for (std::size_t begin = 0; begin < n; begin += kTopkChunk) {
    target = reference::topk_encode_chunk(format, source + begin, std::min(kTopkChunk, n - begin), target);
  }
}

bool topk_decode(TopkFormat format, const std::byte* source, float* target, std::size_t n) {
  return topk::decode(format, source, target, n, reference::topk_get_chunk);
}

bool topk_decode_add(TopkFormat format, const std::byte* source, const float* addend, float* target, std::size_t n) {
  return topk::decode_add(format, source, addend, target, n, reference::topk_get_chunk);
}

}  // namespace qccl::kernels::HWY_NAMESPACE
