// Octets: eight consecutive elements, whose codes fill whole bytes at every width. A lane handles four at a time, a step
// apart, so that what it finds out about a job and a bucket serves 32 elements. A slice's last octet may be shorter, and
// memory has any alignment; octets that are whole and aligned move in one piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/host_device.h"

namespace qccl::kernels::device {

inline constexpr int kOctet = 8;
inline constexpr int kHeld = 4;  // octets of a lane

template <class T>
struct Octet {
  T of[kOctet];
};

struct Run {
  std::uint32_t first = 0;  // element of the slice
  int count = 0;            // 0..8
};

// A lane's octets: those at first, first + step, ... that begin before the end.
struct Runs {
  std::uint32_t first = 0;  // at most the end
  std::uint32_t step = 0;
  std::uint32_t end = 0;

  // So many octets.
  QCCL_HD constexpr bool are_whole(int count) const {
    return end - first >= static_cast<std::uint32_t>(count - 1) * step + kOctet;
  }
  QCCL_HD constexpr Run run(int index) const {
    const std::uint32_t left = end - first;
    const std::uint32_t before = static_cast<std::uint32_t>(index) * step;
    if (left <= before) return {end, 0};
    return {first + before, static_cast<int>(lesser<std::uint32_t>(left - before, kOctet))};
  }
};

template <class T, int kCount = kHeld>
struct Octets {
  Octet<T> of[kCount];
};

// The part of [begin, end) that is octet `index` of it.
QCCL_HD constexpr Run octet_of(std::uint32_t begin, std::uint32_t end, std::uint32_t index) {
  const std::uint32_t first = begin + index * kOctet;
  return {first, static_cast<int>(lesser<std::uint32_t>(end - first, kOctet))};
}

QCCL_HD constexpr std::uint32_t octets(std::uint32_t elements) { return (elements + kOctet - 1) / kOctet; }

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

template <class T, int kCount>
QCCL_HD_COLD Octets<T, kCount> load_apart(const void* array, Runs runs) {
  Octets<T, kCount> values;
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) values.of[k] = load_octet<T>(array, runs.run(k));
  return values;
}
template <class T, int kCount>
QCCL_HD_COLD void store_apart(void* array, Runs runs, Octets<T, kCount> values) {
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) store_octet(array, runs.run(k), values.of[k]);
}

// Missing elements are 0.
template <class T, int kCount>
QCCL_HD Octets<T, kCount> load_octets(const void* array, const Runs& runs) {
  const auto* const from = static_cast<const std::byte*>(array) + std::size_t{runs.first} * sizeof(T);
  if (!runs.are_whole(kCount) || !is_aligned<kStep<Octet<T>>>(from)) return load_apart<T, kCount>(array, runs);
  Octets<T, kCount> values;
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    values.of[k] = load_aligned<Octet<T>>(from + std::size_t{runs.step} * sizeof(T) * static_cast<std::size_t>(k));
  }
  return values;
}

template <class T, int kCount>
QCCL_HD void store_octets(void* array, const Runs& runs, const Octets<T, kCount>& values) {
  auto* const to = static_cast<std::byte*>(array) + std::size_t{runs.first} * sizeof(T);
  if (!runs.are_whole(kCount) || !is_aligned<kStep<Octet<T>>>(to)) return store_apart(array, runs, values);
  QCCL_UNROLL
  for (int k = 0; k < kCount; ++k) {
    store_aligned(to + std::size_t{runs.step} * sizeof(T) * static_cast<std::size_t>(k), values.of[k]);
  }
}

// Whether one of them is NaN, in one comparison.
QCCL_HD constexpr bool is_unordered(float a, float b) { return (a != a) | (b != b); }

// ---- codes of `bits` bits without gaps

// The bytes of up to eight codes, the first in the lowest bits.
QCCL_HD inline std::uint64_t load_code_bytes(const std::byte* from, int bytes) {
  if (bytes == 8 && is_aligned<8>(from)) return load_aligned<std::uint64_t>(from);
  if (bytes == 4 && is_aligned<4>(from)) return load_aligned<std::uint32_t>(from);
  std::uint64_t word = 0;
  QCCL_ROLL
  for (int i = 0; i < bytes; ++i) word |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return word;
}
QCCL_HD inline void store_code_bytes(std::byte* to, int bytes, std::uint64_t word) {
  if (bytes == 8 && is_aligned<8>(to)) return store_aligned(to, word);
  if (bytes == 4 && is_aligned<4>(to)) return store_aligned(to, static_cast<std::uint32_t>(word));
  QCCL_ROLL
  for (int i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(word >> (8 * i));
}

// The codes of a run that begins anywhere. Reads no byte that has none of them.
QCCL_HD inline std::uint64_t load_codes(const std::byte* codes, int bits, Run run) {
  const std::uint64_t first_bit = std::uint64_t{run.first} * static_cast<unsigned>(bits);
  const int shift = static_cast<int>(first_bit % 8);
  const int end = shift + run.count * bits;  // at most 64, which only codes of 8 bits reach, without a shift
  return load_code_bytes(codes + first_bit / 8, (end + 7) / 8) >> shift;
}

// Where the codes of a run that begins at a multiple of eight begin, and how many bytes they have.
QCCL_HD constexpr std::size_t code_offset(std::uint32_t first, int bits) {
  return std::size_t{first / kOctet} * static_cast<unsigned>(bits);
}
QCCL_HD constexpr int code_bytes(int bits, int count) { return (count * bits + 7) / 8; }

QCCL_HD inline std::uint64_t packed(const Octet<std::uint32_t>& codes, int bits) {
  std::uint32_t low = 0, high = 0;
  QCCL_UNROLL
  for (int i = kOctet / 2 - 1; i >= 0; --i) {
    low = low << bits | codes.of[i];
    high = high << bits | codes.of[kOctet / 2 + i];
  }
  return low | std::uint64_t{high} << (kOctet / 2 * bits);
}

QCCL_HD inline Octet<std::uint32_t> unpacked(std::uint64_t word, int bits) {
  const std::uint32_t mask = (1u << bits) - 1;
  auto low = static_cast<std::uint32_t>(word);
  auto high = static_cast<std::uint32_t>(word >> (kOctet / 2 * bits));
  Octet<std::uint32_t> codes;
  QCCL_UNROLL
  for (int i = 0; i < kOctet / 2; ++i) {
    codes.of[i] = low & mask;
    codes.of[kOctet / 2 + i] = high & mask;
    low >>= bits;
    high >>= bits;
  }
  return codes;
}

// The codes of `count` elements, the others 0.
QCCL_HD constexpr std::uint64_t first_codes(std::uint64_t word, int bits, int count) {
  return count == kOctet ? word : word & ((std::uint64_t{1} << (count * bits)) - 1);
}

}  // namespace qccl::kernels::device
