// A new codec adds its include and its line here; everything else is in the codec's folder.
#include "codec/registry.h"

#include "codec/auto/auto_codec.h"
#include "codec/cast/cast_codec.h"
#include "codec/h4/h4_codec.h"
#include "codec/int/int_codec.h"
#include "codec/lossless/lossless_codec.h"
#include "codec/minmax/minmax_codec.h"
#include "codec/sign/sign_codec.h"
#include "codec/topk/topk_codec.h"

namespace qccl {
namespace {

constinit const CodecEntry kNone = {
    .name = "none",
    .summary = "as it is",
    .layout = "the elements' own bytes, little-endian, in order",
    .bound = "0",
    .source = "",
    .settings = {},
    .make = [](const SettingValues&) -> Result<std::shared_ptr<const Codec>> { return std::shared_ptr<const Codec>(); },
};

constexpr const CodecEntry* kCodecs[] = {
    &kNone,  // must be the first
    &kCastCodec, &kMinmaxCodec, &kIntCodec, &kLosslessCodec, &kTopkCodec, &kSignCodec, &kH4Codec, &kAutoCodec,
};

}  // namespace

CodecList codec_list() { return kCodecs; }

}  // namespace qccl
