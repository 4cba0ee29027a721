// Random bytes for stochastic rounding: a pure function of a key and of an element's index in the tensor, whatever the
// slices, threads and instruction set.
//
// Four elements e share a word, word(e / 4), and each takes one of its bytes: the lowest for e % 4 = 0. A word is a
// hash of its counter: "lowbias32" (C. Wellons, hash-prospector, 2018), a permutation of 32 bits with two
// multiplications. One half of a key is mixed in before each, so that streams of different keys are not shifts of each
// other. The key of 2^32 words is mixed from the stream's key and the counter's upper half by the finalizer of
// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Not for cryptography.
//
// Strata: rank r of N adds floor(256 r / N), modulo 256.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"

namespace qccl::kernels {

// The only inputs of an encoding's random numbers, for a run of elements of one tensor on one rank.
struct RandomStream {
  std::uint64_t key = 0;            // equal on all ranks that round the same tensor
  std::uint64_t first_element = 0;  // index in the tensor of the run's first element
  // Rounding stratified over ranks: each of the `world` ranks has its byte in a stratum of its own, so that their
  // errors cancel in the sum (var of the sum: step^2 (world + 1) / 12). Rank 0 of 1: no strata.
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
};

// Every bit of `x` changes about half of the result's: the finalizer of SplitMix64.
QCCL_HD constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// target[i] = the byte of element stream.first_element + i. Any alignment.
void random_bytes(const RandomStream& stream, std::size_t n, std::uint8_t* target);

// The specification, one byte at a time.
namespace reference {

inline constexpr std::uint32_t kRandomFirstFactor = 0x7FEB352Du;
inline constexpr std::uint32_t kRandomSecondFactor = 0x846CA68Bu;

struct RandomKeys {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

// Keys of the words whose counters have this upper half.
QCCL_HD constexpr RandomKeys random_keys(std::uint64_t key, std::uint32_t upper) {
  const std::uint64_t mixed = mix64(mix64(key) + upper);
  return {static_cast<std::uint32_t>(mixed), static_cast<std::uint32_t>(mixed >> 32)};
}

QCCL_HD constexpr std::uint32_t random_word(RandomKeys keys, std::uint32_t lower) {
  std::uint32_t x = lower ^ keys.first;
  x = (x ^ (x >> 16)) * kRandomFirstFactor;
  x = ((x ^ (x >> 15)) + keys.second) * kRandomSecondFactor;
  return x ^ (x >> 16);
}

QCCL_HD constexpr std::uint8_t stratum_offset(std::uint32_t rank, std::uint32_t world) {
  return static_cast<std::uint8_t>(std::uint64_t{256} * rank / world);
}

QCCL_HD constexpr std::uint8_t random_byte(const RandomStream& stream, std::uint64_t element) {
  const std::uint64_t counter = element / 4;
  const RandomKeys keys = random_keys(stream.key, static_cast<std::uint32_t>(counter >> 32));
  const std::uint32_t word = random_word(keys, static_cast<std::uint32_t>(counter));
  const auto byte = static_cast<std::uint32_t>(word >> (element % 4 * 8));
  return static_cast<std::uint8_t>(byte + stratum_offset(stream.rank, stream.world));
}

}  // namespace reference
}  // namespace qccl::kernels
