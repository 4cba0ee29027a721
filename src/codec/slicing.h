// The length of a slice: the same on all ranks, because it depends only on the call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "qccl/types.h"

namespace qccl {

// Limit of a slice's encoded bytes: the payload of one frame.
inline constexpr std::size_t kMaxSliceBytes = 256 * 1024;

// Elements of a slice of about `target_input_bytes` of input (elements of `type`, or float32 with a codec), at most
// kMaxSliceBytes encoded. Raw data (`codec` null): a multiple of 64, at least 64. With a codec: whole buckets, at least
// one; also a multiple of 8, if a small enough one exists.
std::uint64_t slice_elements(const Codec* codec, DataType type, std::size_t target_input_bytes);

}  // namespace qccl
