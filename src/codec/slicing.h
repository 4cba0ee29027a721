// How long a slice is: the same on all ranks, because it depends on the call alone.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/codec.h"
#include "qccl/types.h"

namespace qccl {

// Elements of a slice of about `target_input_bytes`. Raw data (no codec): a multiple of 64. With a
// codec: whole buckets, a multiple of 8 where that is possible, at least one bucket, and never
// more than encodes into 256 KiB.
std::uint64_t slice_elements(const Codec* codec, DataType type, std::size_t target_input_bytes);

}  // namespace qccl
