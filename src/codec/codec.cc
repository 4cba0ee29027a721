#include "codec/codec.h"

#include <fmt/format.h>

#include "codec/cast_codec.h"
#include "codec/minmax_codec.h"
#include "codec/raw_codec.h"

namespace qccl {
namespace {

using CodecResult = Result<std::shared_ptr<const Codec>>;

CodecResult make_cast(DataType wire) {
  if (wire == DataType::bfloat16 || wire == DataType::float16) {
    return std::shared_ptr<const Codec>(std::make_shared<CastCodec>(wire));
  }
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("cast to {} does not exist: allowed are bfloat16 and float16", to_string(wire)));
}

CodecResult make_minmax(int bits, std::uint32_t bucket_size) {
  if (bucket_size < 1 || bucket_size > 65536) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("minmax with bucket_size={} does not exist: allowed are 1..65536", bucket_size));
  }
  if (bits == 32) return std::shared_ptr<const Codec>(std::make_shared<RawCodec>());
  if ((bits >= 1 && bits <= 8) || bits == 16) {
    return std::shared_ptr<const Codec>(std::make_shared<MinmaxCodec>(bits, bucket_size));
  }
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("minmax with bits={} does not exist: allowed are 1..8, 16 and 32", bits));
}

}  // namespace

CodecResult make_codec(const Compression& compression) {
  switch (compression.kind) {
    case Compression::Kind::none: return std::shared_ptr<const Codec>();
    case Compression::Kind::cast: return make_cast(compression.wire);
    case Compression::Kind::minmax: return make_minmax(compression.bits, compression.bucket_size);
  }
  return Failure(ErrorKind::invalid_argument, "no such kind of compression");
}

}  // namespace qccl
