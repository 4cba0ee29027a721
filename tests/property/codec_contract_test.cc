// Every codec of the list keeps the promises of codec/codec.h, and the check detects a codec that
// breaks one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/reduce/reduce.h"
#include "support/codec_contract.h"

namespace qccl::testing {
namespace {

class CodecContract : public ::testing::TestWithParam<Compression> {};

TEST_P(CodecContract, is_kept) {
  const auto codec = make_codec(GetParam()).take_or_throw();
  EXPECT_EQ(broken_promise(*codec), "") << GetParam().to_string();
}

std::string spec_name(const ::testing::TestParamInfo<Compression>& info) {
  std::string name = info.param.to_string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CodecContract, ::testing::ValuesIn(extreme_compressions()), spec_name);

enum class Fault {
  nothing,
  expects_too_many_bytes,
  too_many_bytes,
  tight_bound,
  numbers_for_nan,
  wrong_sum,
  takes_any_size,
  takes_any_size_when_adding,
  index_in_the_slice_counts,
  never_twice_the_same,
  source_address_counts,
  target_address_counts,
  wrong_residual,
  other_bytes_with_residual,
};

// minmax of 8 bits with a fault.
class FaultyCodec final : public Codec {
 public:
  explicit FaultyCodec(Fault fault) : fault_(fault) {}

  std::uint32_t bucket_size() const override { return kBucket; }
  std::size_t max_encoded_bytes(std::size_t elements) const override { return right_->max_encoded_bytes(elements); }
  std::size_t expected_encoded_bytes(std::size_t elements, DataType /*type*/) const override {
    return max_encoded_bytes(elements) + (fault_ == Fault::expects_too_many_bytes ? 1 : 0);
  }
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const override {
    std::vector<float> values(source.begin(), source.end());
    for (float& value : values) {
      if (fault_ == Fault::numbers_for_nan && std::isnan(value)) value = 0;
    }
    if (fault_ == Fault::index_in_the_slice_counts && values.size() > 1) values[1] = values[0];
    if (fault_ == Fault::never_twice_the_same && !values.empty()) values[0] += static_cast<float>(++calls_);
    if (fault_ == Fault::source_address_counts && is_shifted(source.data()) && !values.empty()) values[0] += 1;
    const std::size_t bytes = right_->encode(values, target, random);
    return bytes + (fault_ == Fault::too_many_bytes ? 1 : 0);
  }
  std::optional<std::size_t> encode_with_residual(std::span<const float> source, Bytes target,
                                                  const RandomStream& random, float factor,
                                                  float* residual) const override {
    if (fault_ == Fault::wrong_residual) return encode(source, target, random);
    if (fault_ != Fault::other_bytes_with_residual) return std::nullopt;
    const std::size_t bytes = encode(source, target, random);
    if (bytes > 0) target[bytes - 1] ^= std::byte{1};
    std::vector<float> decoded(source.size());
    decode(ConstBytes(target).first(bytes), decoded).take_or_throw();
    kernels::keep_residual(source.data(), decoded.data(), factor, residual, source.size());
    return bytes;
  }
  Status decode(ConstBytes source, std::span<float> target) const override {
    const std::size_t size = max_encoded_bytes(target.size());
    if (fault_ == Fault::takes_any_size && source.size() != size) return {};
    QCCL_TRY(right_->decode(source, target));
    if (fault_ == Fault::target_address_counts && is_shifted(target.data()) && !target.empty()) target[0] += 1;
    return {};
  }
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const override {
    const std::size_t size = max_encoded_bytes(target.size());
    if (fault_ == Fault::takes_any_size_when_adding && source.size() != size) return {};
    QCCL_TRY(right_->decode_add(source, addend, target));
    if (fault_ == Fault::wrong_sum && !target.empty()) target.back() += 1;
    return {};
  }
  double error_bound(const BlockSummary& block) const override {
    if (fault_ == Fault::index_in_the_slice_counts) return HUGE_VAL;
    if (fault_ == Fault::never_twice_the_same) return HUGE_VAL;
    return right_->error_bound(block) * (fault_ == Fault::tight_bound ? 0.7 : 1);
  }

 private:
  static constexpr std::uint32_t kBucket = 64;
  static bool is_shifted(const float* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 != 0; }

  const Fault fault_;
  const std::shared_ptr<const Codec> right_ = make_codec(minmax({.bits = 8, .bucket_size = kBucket})).take_or_throw();
  mutable int calls_ = 0;
};

TEST(CodecContractItself, finds_every_kind_of_fault) {
  const std::pair<Fault, const char*> faults[] = {
      {Fault::expects_too_many_bytes, "more bytes are expected than are allowed"},
      {Fault::too_many_bytes, "are the limit"},
      {Fault::tight_bound, "beyond the bound"},
      {Fault::numbers_for_nan, "became"},
      {Fault::wrong_sum, "decode_add is not"},
      {Fault::takes_any_size, "are taken"},
      {Fault::takes_any_size_when_adding, "are taken"},
      {Fault::index_in_the_slice_counts, "cut at"},
      {Fault::never_twice_the_same, "other bytes"},
      {Fault::source_address_counts, "other bytes"},
      {Fault::target_address_counts, "at another address"},
      {Fault::wrong_residual, "another residual"},
      {Fault::other_bytes_with_residual, "writes other bytes"},
  };
  EXPECT_EQ(broken_promise(FaultyCodec(Fault::nothing)), "");
  for (const auto& [fault, words] : faults) {
    const std::string found = broken_promise(FaultyCodec(fault));
    EXPECT_NE(found.find(words), std::string::npos) << static_cast<int>(fault) << ": " << found;
  }
}

}  // namespace
}  // namespace qccl::testing
