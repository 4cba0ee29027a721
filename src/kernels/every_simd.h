// For tests: runs a check on every instruction set of this machine, and verifies that it really ran there; arrays off
// alignment, whose kernels may touch no byte beside them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/simd.h"

namespace qccl::kernels {

template <class Check>
void on_every_simd(Check check) {
  const std::string before = simd_target();
  for (const std::string_view name : simd_targets()) {
    SCOPED_TRACE("on " + std::string(name));
    ASSERT_TRUE(force_simd(name));
    ASSERT_EQ(simd_target(), name);
    check();
    if (::testing::Test::HasFatalFailure()) break;
  }
  force_simd(before);
}

// Runs `work` with the scalar reference.
template <class Work>
auto by_reference(Work work) {
  const std::string before = simd_target();
  EXPECT_TRUE(force_simd("scalar"));
  auto result = work();
  force_simd(before);
  return result;
}

// Elements of T, `shift` bytes after the start of an allocation. An output has canaries in front and behind, which it
// checks when it ends. An input ends with its allocation, so that the address sanitizer sees every byte read beyond it.
template <class T>
class Guarded {
 public:
  static Guarded input(const std::vector<T>& values, std::size_t shift) {
    return {values.size(), shift, 0, values.data()};
  }
  static Guarded output(std::size_t n, std::size_t shift) { return output(std::vector<T>(n), shift); }
  // The target's contents before the call are `values`.
  static Guarded output(const std::vector<T>& values, std::size_t shift) {
    return {values.size(), shift, kMargin, values.data()};
  }
  Guarded(const Guarded&) = delete;
  ~Guarded() {
    const auto is_canary = [](char c) { return c == kCanary; };
    EXPECT_TRUE(std::all_of(memory_.begin(), memory_.begin() + begin_, is_canary)) << "written in front";
    EXPECT_TRUE(std::all_of(memory_.end() - margin_, memory_.end(), is_canary)) << "written behind";
  }

  std::size_t size() const { return n_; }
  const T* data() const { return reinterpret_cast<const T*>(memory_.data() + begin_); }
  T* data() { return reinterpret_cast<T*>(memory_.data() + begin_); }

 private:
  static constexpr char kCanary = 0x5A;
  static constexpr std::size_t kMargin = 64;

  Guarded(std::size_t n, std::size_t shift, std::size_t margin, const T* values)
      : n_(n),
        begin_(static_cast<std::ptrdiff_t>(shift)),
        margin_(static_cast<std::ptrdiff_t>(margin)),
        memory_(shift + n * sizeof(T) + margin, kCanary) {
    if (n > 0) std::memcpy(memory_.data() + begin_, values, n * sizeof(T));
  }

  const std::size_t n_;
  const std::ptrdiff_t begin_, margin_;
  std::vector<char> memory_;
};

inline std::vector<std::uint32_t> bits_of(const float* values, std::size_t n) {
  std::vector<std::uint32_t> bits(n);
  if (n > 0) std::memcpy(bits.data(), values, n * sizeof(float));
  return bits;
}
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  return bits_of(values.data(), values.size());
}
inline std::vector<std::uint32_t> bits_of(const Guarded<float>& values) {
  return bits_of(values.data(), values.size());
}

}  // namespace qccl::kernels
