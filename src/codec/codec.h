// A codec: a compressed format of float32 runs. Stateless, immutable, thread-safe.
//
// The unit of encoding is a slice: a run of elements that starts on a bucket boundary. Every
// codec says in its own header: definition, byte table, rounding rule, error bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/result.h"
#include "qccl/compression.h"

namespace qccl {

class Codec {
 public:
  virtual ~Codec() = default;

  // Elements that share a scale; 1 where there is none. Slices are whole numbers of these,
  // except a chunk's last.
  virtual std::uint32_t bucket_size() const = 0;
  // Upper limit of what encode() writes for `elements`.
  virtual std::size_t max_encoded_bytes(std::size_t elements) const = 0;

  // Encodes all of `source` into the front of `target` (at least max_encoded_bytes) and returns
  // the bytes written. Any alignment.
  virtual std::size_t encode(std::span<const float> source, Bytes target) const = 0;

  // Decodes exactly target.size() elements. CorruptData if `source` can't be that many.
  virtual Status decode(ConstBytes source, std::span<float> target) const = 0;
  // target[i] = addend[i] + decoded[i], one rounding for the decode and one for the add.
  // `addend` is `target` itself or does not overlap it.
  virtual Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const = 0;

  // Largest |decoded - original| for a bucket with these extremes, nearest rounding.
  virtual double error_bound(float minimum, float maximum) const = 0;
};

// The codec of a specification; null for Compression::Kind::none (raw data is no codec's work).
// InvalidArgument if bits or bucket_size do not exist.
Result<std::shared_ptr<const Codec>> make_codec(const Compression& compression);

}  // namespace qccl
