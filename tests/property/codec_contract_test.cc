// Every codec of the list keeps what codec/codec.h promises, and so do whole collectives with it.
#include <gtest/gtest.h>

#include <algorithm>

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

}  // namespace
}  // namespace qccl::testing
