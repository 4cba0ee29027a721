// Helpers of fuzz targets: choices made from bytes, and a check that ends the program.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

namespace qccl::fuzz {

// Consumes an input from its front; returns zeros once it is used up.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(data, size) {}

  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const std::uint8_t first = rest_[0];
    rest_ = rest_.subspan(1);
    return first;
  }
  std::uint32_t number() { return byte() | byte() << 8u; }  // up to 65535
  std::span<const std::uint8_t> rest() const { return rest_; }

 private:
  std::span<const std::uint8_t> rest_;
};

// Ends the program if the requirement is violated: a fuzzer reports that as a finding.
inline void require(bool holds, const std::string& what) {
  if (holds) return;
  fmt::print(stderr, "violated: {}\n", what);
  std::abort();
}

}  // namespace qccl::fuzz
