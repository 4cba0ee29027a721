// The only inputs of an encoding's random numbers: no slice, thread, transport or arrival order changes them, so that a
// rerun encodes the same bytes.
#pragma once

#include <cstdint>

namespace qccl {

// The reason for an encoding. One rank encodes an element at most once in each phase.
enum class RandomPhase : std::uint8_t {
  input,  // a rank's input, sent to others
  owner,  // a finished sum, on its way to all ranks
  hop,    // a partial sum, on its way to the next rank
};

// `first_element` is the index of the encoded run in the whole tensor, however it is sliced. The key is the same on all
// ranks, so that rounding may be stratified over them: this is rank `rank` of `world`.
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

// The key of one phase of one collective. `counter` distinguishes collectives: it is the group's count of compressed
// ones, or that of the error feedback state. mixed() makes all bits of the key count.
constexpr std::uint64_t draw_key(std::uint64_t seed, std::uint64_t counter, RandomPhase phase) {
  return mixed(mixed(mixed(seed) ^ counter) ^ static_cast<std::uint64_t>(phase));
}

}  // namespace qccl
