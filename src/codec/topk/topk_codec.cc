#include "codec/topk/topk_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace qccl {
namespace {

constexpr CodecSetting kSettings[] = {
    {.key = "density",
     .allowed = "0.0002..0.5",
     .default_value = 0.01,
     .meaning = "share of the elements that is sent"},
    {.key = "values", .allowed = "fp32|int8", .meaning = "type of what is sent"},
};

Result<std::shared_ptr<const Codec>> make(const SettingValues& values) {
  const double kept = std::ceil(values.number("density") * static_cast<double>(kernels::kTopkChunk));
  const kernels::TopkFormat format{static_cast<std::uint32_t>(kept), values.word("values") == "int8"};
  return std::shared_ptr<const Codec>(std::make_shared<TopkCodec>(format));
}

Status misplaced() {
  return Failure(ErrorKind::corrupt_data, "topk: places of elements that do not rise or are outside of their chunk");
}

}  // namespace

constinit const CodecEntry kTopkCodec = {
    .name = "topk",
    .summary = "the largest elements and their places; wants error feedback",
    .layout =
        "for each chunk of 4096 elements, of which k are sent:\n"
        "int8 only: scale, float32\n"
        "k values, float32 or int8, in the order of their places\n"
        "k places, 12 bits each, rising, padded to a byte",
    .bound =
        "max |x| (of a chunk of n together: ||x - y||^2 <= (1 - k / n) ||x||^2,\n"
        "values=int8: k (scale / 2)^2 more; scale = max |x| / 127, or 2^-126)",
    .source = "top-k with error feedback (Stich, Cordonnier, Jaggi 2018, arXiv 1809.07599)",
    .settings = kSettings,
    .make = make,
    .examples = "topk:density=0.1 topk:density=0.01 topk:density=0.01,values=int8 topk:density=0.001",
};

Compression topk(TopkOptions options) {
  return make_compression("topk", {{"density", options.density}, {"values", options.int8_values ? 1.0 : 0.0}});
}

std::size_t TopkCodec::max_encoded_bytes(std::size_t elements) const {
  return kernels::topk_encoded_bytes(format_, elements);
}

std::size_t TopkCodec::encode(std::span<const float> source, Bytes target, const RandomStream&) const {
  const std::size_t bytes = max_encoded_bytes(source.size());
  QCCL_CHECK(target.size() >= bytes);
  kernels::topk_encode(format_, source.data(), source.size(), target.data());
  return bytes;
}

Status TopkCodec::check_size(ConstBytes source, std::size_t elements) const {
  const std::size_t bytes = max_encoded_bytes(elements);
  if (source.size() == bytes) return {};
  return Failure(ErrorKind::corrupt_data,
                 fmt::format("topk of {} in {}: got {} bytes for {} elements, which take {}", format_.kept,
                             kernels::kTopkChunk, source.size(), elements, bytes));
}

Status TopkCodec::decode(ConstBytes source, std::span<float> target) const {
  QCCL_TRY(check_size(source, target.size()));
  if (!kernels::topk_decode(format_, source.data(), target.data(), target.size())) return misplaced();
  return {};
}

Status TopkCodec::decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const {
  QCCL_CHECK(addend.size() == target.size());
  QCCL_TRY(check_size(source, target.size()));
  if (!kernels::topk_decode_add(format_, source.data(), addend.data(), target.data(), target.size())) {
    return misplaced();
  }
  return {};
}

// An element that is not sent is no larger than one that is, and the norm includes both.
double TopkCodec::error_bound(const BlockSummary& block) const {
  const double most = block.magnitude();
  const double lost = std::min(most, block.norm / std::sqrt(2.0));
  if (!format_.int8_values) return lost;
  return std::max(lost, std::max(most / 127, 0x1p-126) * 0.5 * (1 + 0x1p-20));
}

}  // namespace qccl
