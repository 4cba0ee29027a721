// Blocks of h4.h for the target without vectors: the reference itself, element by element.

HWY_BEFORE_NAMESPACE();
namespace qccl::kernels::HWY_NAMESPACE {

template <int kB>
class H4Encoder {
 public:
  static constexpr int kBits = kB;
  explicit H4Encoder(std::uint32_t seed) : seed_(seed) {}

  float sum(const float* v) const {
    return reference::h4_sum(v, [](float x) { return std::fabs(x); });
  }
  float fourths(const float* v, float factor) const {
    return reference::h4_sum(
        v, [factor](float x) { return ((x * factor) * (x * factor)) * ((x * factor) * (x * factor)); });
  }
  H4Moments encode(const float* v, float factor, int row, std::byte* codes) const {
    std::int32_t z[kH4Block];
    H4Moments moments{.squares = coefficients(v, factor, row, z)};
    const auto m = static_cast<std::int32_t>(rint(reference::h4_cells_factor(moments.squares)));
    std::fill_n(codes, h4_code_bytes(kBits), std::byte{0});
    for (int e = 0; e < static_cast<int>(kH4Block); ++e) {
      const int code = code_of(z[e], m);
      const int level = reference::h4_levels(kBits)[static_cast<std::size_t>(code)];
      reference::h4_put_code(kBits, codes, e, code);
      moments.product += z[e] * level;
      moments.levels += level * level;
    }
    return moments;
  }
  void transform(const float* v, float factor, int row, float* z) const {
    std::int32_t whole[kH4Block];
    coefficients(v, factor, row, whole);
    std::copy(whole, whole + kH4Block, z);
  }

 private:
  // Rounds to nearest even, for |x| < 2^22.
  static float rint(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

  // Returns the sum of q^2.
  std::int32_t coefficients(const float* v, float factor, int row, std::int32_t* z) const {
    std::int32_t squares = 0;
    for (std::size_t e = 0; e < kH4Block; ++e) {
      const auto q = static_cast<std::int32_t>(rint(v[e] * factor));
      squares += q * q;
      z[e] = reference::h4_is_negative(seed_, row + static_cast<int>(e / 16), static_cast<int>(e % 16)) ? -q : q;
    }
    reference::h4_transform(z);
    return squares;
  }
  static int code_of(std::int32_t z, std::int32_t m) {
    constexpr reference::H4Codebook kBook = reference::h4_codebook(kBits);
    const std::int32_t t = std::clamp(z * m >> 16, -128, 127);
    const std::int32_t cell = t < 0 ? -1 - t : t;
    int magnitude = 0;
    while (magnitude + 1 < kBook.magnitudes && cell >= kBook.thresholds[static_cast<std::size_t>(magnitude)])
      ++magnitude;
    return t < 0 ? magnitude + kBook.magnitudes : magnitude;
  }

  const std::uint32_t seed_;
};

template <int kB>
class H4Decoder {
 public:
  static constexpr int kBits = kB;
  explicit H4Decoder(std::uint32_t seed) : seed_(seed) {}

  void sums(const std::byte* codes, int row, float* sums) const {
    for (std::size_t e = 0; e < kH4Block; ++e) {
      const int code = reference::h4_get_code(kBits, codes, static_cast<int>(e));
      sums[e] = reference::h4_levels(kBits)[static_cast<std::size_t>(code)];
    }
    transform(sums, row);
  }
  void transform(float* sums, int row) const {
    reference::h4_transform(sums);
    for (std::size_t e = 0; e < kH4Block; ++e) {
      if (reference::h4_is_negative(seed_, row + static_cast<int>(e / 16), static_cast<int>(e % 16)))
        sums[e] = 0 - sums[e];
    }
  }
  template <class Finish>
  bool decode(const std::byte* codes, int row, float scale, Finish finish, float* target) const {
    decode_any(*this, {scale, H4BlockKind::once, false}, codes, row, kH4Block, finish, target);
    return true;
  }

 private:
  const std::uint32_t seed_;
};

}  // namespace qccl::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
