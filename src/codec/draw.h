// What random numbers of an encoding depend on, and nothing else: no slice, thread, transport or
// arrival changes them, so that a rerun encodes the same bytes.
#pragma once

#include <cstdint>

namespace qccl {

// Why something is encoded. An element is encoded once at most in each phase by one rank.
enum class DrawPhase : std::uint8_t {
  input,  // what a rank gives away
  owner,  // a finished sum, on its way to all ranks
  hop,    // a partial sum, on its way to the next rank
};

// `first_element` is the place of the encoded run in the whole tensor, whatever the slices. The key
// is the same on all ranks, so that rounding may be stratified over them: rank r of `world`.
struct Draw {
  std::uint64_t key = 0;
  std::uint64_t first_element = 0;
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
};

// Every bit of `z` changes about half of the result's (the finalizer of splitmix64: Steele, Lea, Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// The key of one phase of one collective. `counter` tells collectives apart: the group's count of
// compressed ones, or that of the error feedback state. mixed(), so that all bits of the key count.
constexpr std::uint64_t draw_key(std::uint64_t seed, std::uint64_t counter, DrawPhase phase) {
  return mixed(mixed(mixed(seed) ^ counter) ^ static_cast<std::uint64_t>(phase));
}

}  // namespace qccl
