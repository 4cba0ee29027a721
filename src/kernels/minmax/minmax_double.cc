#include "kernels/minmax/minmax_double.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/lanes/bit_stream.h"
#include "kernels/minmax/minmax_reference.h"
#include "kernels/reduce/reduce_reference.h"

namespace qccl::kernels {
namespace {

using reference::BucketHeader;

double largest_of(int bits) { return std::ldexp(1.0, bits) - 1; }

BucketHeader header_of(const float* bucket, std::size_t n, int bits) {
  float minimum = bucket[0];
  float maximum = bucket[0];
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(bucket[i])) return reference::invalid_header();
    minimum = std::min(minimum, bucket[i]);
    maximum = std::max(maximum, bucket[i]);
  }
  const double range = static_cast<double>(maximum) - static_cast<double>(minimum);
  const auto unit = static_cast<float>(range / largest_of(bits));
  return {std::max(unit, reference::kSmallestUnit), minimum + 0.0f};
}

bool is_finite(BucketHeader header) { return std::isfinite(header.unit) && std::isfinite(header.minimum); }

// The value added before the floor: a half, or one from the elements' random bytes.
class Thresholds {
 public:
  explicit Thresholds(const RandomStream* random) : random_(random) {}
  // For element `index`, which rises by one from call to call.
  double at(std::size_t index) {
    if (random_ == nullptr) return 0.5;
    if (index % kRun == 0) {
      RandomStream stream = *random_;
      stream.first_element += index;
      random_bytes(stream, kRun, bytes_);
    }
    return (bytes_[index % kRun] + 0.5) / 256;
  }

 private:
  static constexpr std::size_t kRun = 256;
  const RandomStream* const random_;
  std::uint8_t bytes_[kRun];
};

// Calls use(index, value) for all elements in order.
template <class Use>
void decode_each(MinmaxFormat format, const std::byte* source, std::size_t n, Use use) {
  constexpr double kMost = std::numeric_limits<float>::max();
  BitReader codes(source + minmax_header_bytes(format, n), format.bits);
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, source += kBucketHeaderBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.bucket_size);
    BucketHeader header;
    std::memcpy(&header, source, sizeof(header));
    const bool valid = is_finite(header);
    for (std::size_t i = begin; i < end; ++i) {
      const auto code = static_cast<double>(codes.get());
      const double y = static_cast<double>(header.minimum) + code * static_cast<double>(header.unit);
      use(i, valid ? static_cast<float>(std::clamp(y, -kMost, kMost)) : canonical_nan());
    }
  }
}

}  // namespace

void minmax_encode_in_double(MinmaxFormat format, const float* source, std::size_t n, std::byte* target,
                             const RandomStream* random) {
  const double largest = largest_of(format.bits);
  BitWriter codes(target + minmax_header_bytes(format, n), format.bits);
  Thresholds thresholds(random);
  for (std::size_t begin = 0; begin < n; begin += format.bucket_size, target += kBucketHeaderBytes) {
    const std::size_t end = std::min<std::size_t>(n, begin + format.bucket_size);
    const BucketHeader header = header_of(source + begin, end - begin, format.bits);
    std::memcpy(target, &header, sizeof(header));
    const bool valid = is_finite(header);
    for (std::size_t i = begin; i < end; ++i) {
      const double threshold = thresholds.at(i);
      const double offset = static_cast<double>(source[i]) - static_cast<double>(header.minimum);
      const double steps = std::min(offset / static_cast<double>(header.unit), largest);
      codes.put(valid ? static_cast<std::uint64_t>(steps + threshold) : 0);
    }
  }
  codes.end();
}

void minmax_decode_in_double(MinmaxFormat format, const std::byte* source, float* target, std::size_t n) {
  decode_each(format, source, n, [&](std::size_t i, float y) { target[i] = y; });
}

void minmax_decode_add_in_double(MinmaxFormat format, const std::byte* source, const float* addend, float* target,
                                 std::size_t n) {
  decode_each(format, source, n, [&](std::size_t i, float y) { target[i] = reference::canonical(addend[i] + y); });
}

}  // namespace qccl::kernels
