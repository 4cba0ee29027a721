// Random bytes for stochastic rounding: a pure function of a key and of an element's index in the tensor, whatever the
// slices, threads and instruction set. Rule: random_reference.h.
#pragma once

#include <cstddef>
#include <cstdint>

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

// Every bit of `x` changes about half of the result's (the finalizer of SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
constexpr std::uint64_t mix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// target[i] = the byte of element stream.first_element + i. Any alignment.
void random_bytes(const RandomStream& stream, std::size_t n, std::uint8_t* target);

}  // namespace qccl::kernels
