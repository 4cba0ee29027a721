// The list of codecs. A new codec adds its name to the two lists here; everything else is in its folder.
#include "codec/registry.h"

namespace qccl {

extern const CodecEntry kCastCodec, kMinmaxCodec, kIntCodec, kLosslessCodec, kTopkCodec, kSignCodec, kH4Codec,
    kAutoCodec;

namespace {

constinit const CodecEntry kNone = {
    .name = "none",
    .summary = "uncompressed",
    .layout = "the elements' own bytes, little-endian, in order",
    .bound = "0",
    .source = "",
    .settings = {},
    .make = [](const SettingValues&) -> Result<std::shared_ptr<const Codec>> { return std::shared_ptr<const Codec>(); },
};

// The index is Compression::codec, which ranks exchange: a new codec comes last.
constexpr const CodecEntry* kCodecs[] = {
    &kNone, &kCastCodec, &kMinmaxCodec, &kIntCodec, &kLosslessCodec, &kTopkCodec, &kSignCodec, &kH4Codec, &kAutoCodec,
};

}  // namespace

CodecList codec_list() { return kCodecs; }

}  // namespace qccl
