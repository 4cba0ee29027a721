// Eight consecutive elements, which one lane handles at a time: their codes of any width fill whole bytes.
// A run begins anywhere and may be shorter; memory has any alignment. What is aligned moves in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/host_device.h"

namespace qccl::kernels::device {

inline constexpr int kOctet = 8;

template <class T>
struct Octet {
  T of[kOctet];
};

struct Run {
  std::uint32_t first = 0;  // element of the slice
  int count = 0;            // 0..8
};

// The part of [begin, end) that is octet `index` of it.
constexpr Run octet_of(std::uint32_t begin, std::uint32_t end, std::uint32_t index) {
  const std::uint32_t first = begin + index * kOctet;
  return {first, static_cast<int>(lesser<std::uint32_t>(end - first, kOctet))};
}

constexpr std::uint32_t octets(std::uint32_t elements) { return (elements + kOctet - 1) / kOctet; }

template <std::size_t kBytes>
QCCL_HD bool is_aligned(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % kBytes == 0;
}

// What a lane moves at once, at most.
template <class T>
inline constexpr std::size_t kStep = sizeof(T) < 16 ? sizeof(T) : 16;

// A device faults where memory is not aligned to the step, and so does the host.
template <std::size_t kBytes>
QCCL_HD void check_aligned([[maybe_unused]] const void* at) {
#if !defined(__CUDACC__)
  if (!is_aligned<kBytes>(at)) __builtin_trap();
#endif
}

template <class T>
QCCL_HD T load_aligned(const void* from) {
  check_aligned<kStep<T>>(from);
  T value;
  std::memcpy(&value, __builtin_assume_aligned(from, kStep<T>), sizeof(T));
  return value;
}

template <class T>
QCCL_HD void store_aligned(void* to, const T& value) {
  check_aligned<kStep<T>>(to);
  std::memcpy(__builtin_assume_aligned(to, kStep<T>), &value, sizeof(T));
}

// The parts of a run that does not move in one piece.
template <class T>
QCCL_HD_COLD Octet<T> load_elements(const std::byte* from, int count) {
  Octet<T> values{};
  for (int i = 0; i < count; ++i) std::memcpy(values.of + i, from + i * sizeof(T), sizeof(T));
  return values;
}
template <class T>
QCCL_HD_COLD void store_elements(std::byte* to, int count, Octet<T> values) {
  for (int i = 0; i < count; ++i) std::memcpy(to + i * sizeof(T), values.of + i, sizeof(T));
}

template <class T>
QCCL_HD Octet<T> load_octet(const void* array, Run run) {
  const auto* const from = static_cast<const std::byte*>(array) + std::size_t{run.first} * sizeof(T);
  if (run.count < kOctet || !is_aligned<kStep<Octet<T>>>(from)) return load_elements<T>(from, run.count);
  return load_aligned<Octet<T>>(from);
}

template <class T>
QCCL_HD void store_octet(void* array, Run run, const Octet<T>& values) {
  auto* const to = static_cast<std::byte*>(array) + std::size_t{run.first} * sizeof(T);
  if (run.count < kOctet || !is_aligned<kStep<Octet<T>>>(to)) return store_elements(to, run.count, values);
  store_aligned(to, values);
}

// ---- codes of `bits` bits without gaps

QCCL_HD_COLD inline std::uint64_t load_code_bytes(const std::byte* from, int bits) {
  std::uint64_t word = 0;
  for (int i = 0; 8 * i < bits; ++i) word |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return word;
}
QCCL_HD_COLD inline void store_code_bytes(std::byte* to, int bits, std::uint64_t word) {
  for (int i = 0; 8 * i < bits; ++i) to[i] = static_cast<std::byte>(word >> (8 * i));
}

// The codes of a run, the first in the lowest bits. Reads no byte that has none of them.
QCCL_HD inline std::uint64_t load_codes(const std::byte* codes, int bits, Run run) {
  const std::uint64_t first_bit = std::uint64_t{run.first} * static_cast<unsigned>(bits);
  const std::byte* const from = codes + first_bit / 8;
  const int shift = static_cast<int>(first_bit % 8);
  const int end = shift + run.count * bits;  // at most 64, which only codes of 8 bits reach, without a shift
  if (end == 64 && is_aligned<8>(from)) return load_aligned<std::uint64_t>(from);
  if (end == 32 && is_aligned<4>(from)) return load_aligned<std::uint32_t>(from) >> shift;
  return load_code_bytes(from, end) >> shift;
}

// The run begins at a multiple of eight. The bits behind the last code are 0.
QCCL_HD inline void store_codes(std::byte* codes, int bits, Run run, std::uint64_t word) {
  std::byte* const to = codes + std::size_t{run.first / 8} * static_cast<unsigned>(bits);
  const int end = run.count * bits;
  if (end == 64 && is_aligned<8>(to)) return store_aligned(to, word);
  if (end == 32 && is_aligned<4>(to)) return store_aligned(to, static_cast<std::uint32_t>(word));
  store_code_bytes(to, end, word);
}

constexpr std::uint32_t code_at(std::uint64_t word, int bits, int index) {
  return static_cast<std::uint32_t>(word >> (index * bits)) & ((1u << bits) - 1);
}

}  // namespace qccl::kernels::device
