// For tests: values through a codec, and their errors against its bound; refusals of text.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "codec/codec.h"
#include "qccl/error.h"

namespace qccl {

inline std::shared_ptr<const Codec> codec_of(const Compression& compression) {
  return make_codec(compression).take_or_throw();
}

inline std::vector<std::byte> encoded(const Codec& codec, std::span<const float> values,
                                      const RandomStream& random = {}) {
  std::vector<std::byte> bytes(codec.max_encoded_bytes(values.size()));
  bytes.resize(codec.encode(values, bytes, random));
  return bytes;
}

inline std::vector<float> round_trip(const Codec& codec, std::span<const float> values,
                                     const RandomStream& random = {}) {
  std::vector<float> decoded(values.size());
  const Status status = codec.decode(encoded(codec, values, random), decoded);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return decoded;
}

// Largest error of an element relative to the bound of its bucket; infinity if it decodes to no finite number.
inline double worst_error(const Codec& codec, std::span<const float> x, const RandomStream& random = {}) {
  const std::vector<float> y = round_trip(codec, x, random);
  double worst = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += codec.bucket_size()) {
    const std::size_t end = std::min<std::size_t>(x.size(), begin + codec.bucket_size());
    const auto [low, high] = std::minmax_element(&x[begin], &x[begin] + (end - begin));
    double norm = 0;
    for (std::size_t i = begin; i < end; ++i) norm = std::hypot(norm, x[i]);
    const double bound = codec.error_bound({*low, *high, norm * (1 + 1e-12), end - begin});
    for (std::size_t i = begin; i < end; ++i) {
      const double error = std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i]));
      worst = std::max(worst, std::isfinite(y[i]) ? error / bound : HUGE_VAL);
    }
  }
  return worst;
}

// The message of the Error(invalid_argument) that `parse` throws.
template <class Parse>
std::string refusal(Parse parse) {
  try {
    static_cast<void>(parse());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

}  // namespace qccl
