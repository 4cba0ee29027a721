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

// Both are aligned. Otherwise a device faults, and so does the host.
template <std::size_t kBytes>
QCCL_HD void copy_aligned(void* to, const void* from) {
  constexpr std::size_t kStep = kBytes < 16 ? kBytes : 16;
#if !defined(__CUDACC__)
  if (!is_aligned<kStep>(to) || !is_aligned<kStep>(from)) __builtin_trap();
#endif
  auto* const target = static_cast<std::byte*>(__builtin_assume_aligned(to, kStep));
  const auto* const source = static_cast<const std::byte*>(__builtin_assume_aligned(from, kStep));
  QCCL_UNROLL
  for (std::size_t at = 0; at < kBytes; at += kStep) std::memcpy(target + at, source + at, kStep);
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
inline constexpr std::size_t kOctetStep = sizeof(Octet<T>) < 16 ? sizeof(Octet<T>) : 16;

template <class T>
QCCL_HD Octet<T> load_octet(const void* array, Run run) {
  const auto* const from = static_cast<const std::byte*>(array) + std::size_t{run.first} * sizeof(T);
  if (run.count < kOctet || !is_aligned<kOctetStep<T>>(from)) return load_elements<T>(from, run.count);
  alignas(16) Octet<T> values;
  copy_aligned<sizeof(values)>(&values, from);
  return values;
}

template <class T>
QCCL_HD void store_octet(void* array, Run run, const Octet<T>& values) {
  auto* const to = static_cast<std::byte*>(array) + std::size_t{run.first} * sizeof(T);
  if (run.count < kOctet || !is_aligned<kOctetStep<T>>(to)) return store_elements(to, run.count, values);
  alignas(16) const Octet<T> whole = values;
  copy_aligned<sizeof(values)>(to, &whole);
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
  if (end == 64 && is_aligned<8>(from)) {
    std::uint64_t word;
    copy_aligned<8>(&word, from);
    return word;
  }
  if (end == 32 && is_aligned<4>(from)) {
    std::uint32_t word;
    copy_aligned<4>(&word, from);
    return word >> shift;
  }
  return load_code_bytes(from, end) >> shift;
}

// Of a run that begins at a multiple of eight. The bits behind the last code are 0.
QCCL_HD inline void store_codes(std::byte* codes, int bits, Run run, std::uint64_t word) {
  std::byte* const to = codes + std::size_t{run.first / 8} * static_cast<unsigned>(bits);
  const int end = run.count * bits;
  if (end == 64 && is_aligned<8>(to)) return copy_aligned<8>(to, &word);
  if (end == 32 && is_aligned<4>(to)) {
    const auto half = static_cast<std::uint32_t>(word);
    return copy_aligned<4>(to, &half);
  }
  store_code_bytes(to, end, word);
}

constexpr std::uint32_t code_at(std::uint64_t word, int bits, int index) {
  return static_cast<std::uint32_t>(word >> (index * bits)) & ((1u << bits) - 1);
}

}  // namespace qccl::kernels::device
