// Byte spans and little-endian fields of wire formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace qccl {

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

inline std::string_view as_text(ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// QCCL's formats are little-endian, and so are the machines it is built for (checked in CMake).
template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

}  // namespace qccl
