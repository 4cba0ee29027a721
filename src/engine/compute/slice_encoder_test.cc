#include "engine/compute/slice_encoder.h"

#include <gtest/gtest.h>

#include <vector>

#include "codec/codec.h"

namespace qccl::engine {
namespace {

// With error feedback a second encoding would take the residual a second time.
TEST(SliceEncoder, encodes_a_slice_once_however_many_peers_get_it) {
  const auto codec = make_codec(minmax({.bits = 4})).take_or_throw();
  ScratchPool pool;
  const MathContext math{DataType::float32, ReduceOp::sum, 2, codec.get(), &pool};
  SliceEncoder encoder(math);
  std::vector<float> input{1, -2, 3, 4};
  const auto encode = [&] {
    const ConstBytes bytes = encoder.encode_once(reinterpret_cast<const std::byte*>(input.data()), input.size());
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  encoder.begin(0);
  const auto first = encode();
  input[0] = 100;
  EXPECT_EQ(encode(), first);
  encoder.begin(0);
  EXPECT_NE(encode(), first) << "the next slice";
  encoder.release();
}

}  // namespace
}  // namespace qccl::engine
