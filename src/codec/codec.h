// A codec: a compressed format of float32 runs. Stateless, immutable, thread-safe.
//
// The unit of encoding is a slice: a run of elements that starts on a bucket boundary. A value that is not finite never
// comes back as a number; in buckets of several elements it makes the whole bucket NaN. It changes no other bucket.
// Every codec has a folder here and an entry in the list in registry.cc. Its source states definition, rounding and
// bound. Functions are called with the default floating point environment: rounding to nearest, denormals kept.
// docs/add-a-codec.md shows how to add one.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "kernels/device/payload_format.h"
#include "kernels/lanes/random.h"
#include "qccl/compression.h"

namespace qccl {

using kernels::RandomStream;

// The reason for an encoding. One rank encodes an element at most once in each phase.
enum class RandomPhase : std::uint8_t {
  input,  // a rank's input, sent to others
  owner,  // a finished sum, on its way to all ranks
  hop,    // a partial sum, on its way to the next rank
  message,
};

// RandomStream::key of one phase of one collective. `counter` distinguishes collectives: it is the group's count of
// compressed ones, or that of the error feedback state.
constexpr std::uint64_t random_key(std::uint64_t seed, std::uint64_t counter, RandomPhase phase) {
  using kernels::mix64;
  return mix64(mix64(mix64(seed) ^ counter) ^ static_cast<std::uint64_t>(phase));
}

// Known limits of the values of a block (a bucket, or several), which bound the error of its encoding beforehand.
struct BlockSummary {
  // No value lies outside; both are finite.
  double minimum = 0;
  double maximum = 0;
  // The Euclidean norm is at most this; infinity if only the extremes are known.
  double norm = std::numeric_limits<double>::infinity();
  // It has at most so many values.
  std::size_t elements = std::numeric_limits<std::size_t>::max();

  double magnitude() const { return std::max(std::fabs(minimum), std::fabs(maximum)); }
  // Bound on the norm of any bucket of the block: the tighter of the two that follow from what is known.
  double norm_of(std::size_t bucket_size) const {
    return std::min(norm, magnitude() * std::sqrt(static_cast<double>(std::min(elements, bucket_size))));
  }
};

class Codec {
 public:
  virtual ~Codec() = default;

  // Elements whose decoded values depend on each other, through a scale for instance; 1 if each stands alone, however
  // they are packed. Slices are whole numbers of buckets, except a chunk's last slice.
  virtual std::uint32_t bucket_size() const = 0;
  // Upper limit of the bytes encode() writes for `elements`; grows with them.
  virtual std::size_t max_encoded_bytes(std::size_t elements) const = 0;
  // Encodes all of `source` into the front of `target` (at least max_encoded_bytes) and returns the number of bytes
  // written, which may depend on the values. Any alignment. A bucket's codes are a function of its values, of `random`
  // and of its index in the tensor (random.first_element is that of source[0]); only their place in the payload may
  // depend on how the run was cut.
  virtual std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const = 0;
  // For error feedback: encodes and sets residual[i] = (source[i] - decoded[i]) * factor in one pass. Leaves
  // residual[i] unchanged where the result is not finite. `residual` is as long as `source` and does not overlap it.
  // Returns nothing, and writes nothing, if this is no faster than encode(), decode() and kernels::keep_residual().
  virtual std::optional<std::size_t> encode_with_residual(std::span<const float> /*source*/, Bytes /*target*/,
                                                          const RandomStream& /*random*/, float /*factor*/,
                                                          float* /*residual*/) const {
    return std::nullopt;
  }
  // Decodes exactly target.size() elements from exactly the bytes that encode() returned. The bytes come from a peer
  // and may be anything: CorruptData if they cannot be that many elements; the contents of `target` are then
  // unspecified.
  virtual Status decode(ConstBytes source, std::span<float> target) const = 0;
  // target[i] = addend[i] + decoded[i], one rounding for the decode and one for the add.
  // `addend` is `target` itself or does not overlap it.
  virtual Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const = 0;
  // Largest |decoded - original| of any element of such a block, whatever the random numbers; it grows with the block's
  // extremes and norm. Infinity: an element may decode to infinity.
  virtual double error_bound(const BlockSummary& block) const = 0;
  // Whether every bit comes back, NaN payloads included. 16-bit types are then widened and narrowed without losing a
  // bit (kernels/reduce/reduce.h), and sums of them are rounded before they are encoded.
  virtual bool is_exact() const { return false; }
  // For codecs that the kernels of devices have (kernels/device/slice_job.h): these make the same bytes.
  virtual std::optional<kernels::device::PayloadFormat> device_format() const { return std::nullopt; }
  // The bytes of the slice of `elements` at the front of `source`, by its headers; nothing if none is there. Of codecs
  // with a device_format(): their kernels do not tell how much they write, and read only what was checked.
  virtual std::optional<std::size_t> find_encoded_bytes(ConstBytes source, std::size_t elements) const {
    const std::size_t bytes = max_encoded_bytes(elements);
    return source.size() >= bytes ? std::optional(bytes) : std::nullopt;
  }
  // The bytes that gradients of this type, before they are widened, take on average, which prices assume. The same on
  // all ranks, and at most max_encoded_bytes().
  virtual std::size_t expected_encoded_bytes(std::size_t elements, DataType /*type*/) const {
    return max_encoded_bytes(elements);
  }
};

// Base of codecs whose encoded size depends on the number of elements alone: it checks sizes, so that the codec itself
// only sees the right ones.
class FixedSizeCodec : public Codec {
 public:
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const final;
  Status decode(ConstBytes source, std::span<float> target) const final;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const final;

 protected:
  // For errors: "minmax of 8 bits in buckets of 1024".
  virtual std::string description() const = 0;
  // encode() and decode(), or decode_add() unless `addend` is null, with exactly max_encoded_bytes() at `target` and
  // `source`.
  virtual void write(std::span<const float> source, std::byte* target, const RandomStream& random) const = 0;
  virtual Status read(const std::byte* source, const float* addend, std::span<float> target) const = 0;

 private:
  Status check_size(ConstBytes source, std::size_t elements) const;
};

// Base of codecs whose encoded size depends on the values: it checks room and lengths.
class VariableSizeCodec : public Codec {
 public:
  std::size_t encode(std::span<const float> source, Bytes target, const RandomStream& random) const final;
  Status decode(ConstBytes source, std::span<float> target) const final;
  Status decode_add(ConstBytes source, std::span<const float> addend, std::span<float> target) const final;
  std::size_t expected_encoded_bytes(std::size_t elements, DataType type) const override = 0;

 protected:
  // For errors: "lossless".
  virtual std::string description() const = 0;
  // encode(), with room for max_encoded_bytes() at `target`.
  virtual std::size_t write(std::span<const float> source, std::byte* target, const RandomStream& random) const = 0;
  // decode(), or decode_add() unless `addend` is null. False: the bytes are not target.size() elements.
  virtual bool read(ConstBytes source, const float* addend, std::span<float> target) const = 0;

 private:
  Status read_or_fail(ConstBytes source, const float* addend, std::span<float> target) const;
};

// Base of codecs whose kernels take a format.
template <class Format, auto kEncodedBytes, auto kDecode>
class KernelCodec : public FixedSizeCodec {
 public:
  explicit KernelCodec(Format format) : format_(format) {}
  std::size_t max_encoded_bytes(std::size_t elements) const override { return kEncodedBytes(format_, elements); }

 protected:
  Status read(const std::byte* source, const float* addend, std::span<float> target) const override {
    kDecode(format_, source, addend, target.data(), target.size());
    return {};
  }
  const Format format_;
};

// The codec of a specification; null for none (no codec handles raw data). InvalidArgument, which lists what is
// allowed, if there is no such codec or setting.
Result<std::shared_ptr<const Codec>> make_codec(const Compression& compression);

}  // namespace qccl
