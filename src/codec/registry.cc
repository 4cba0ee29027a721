// The list of codecs. A new codec adds its name here and to the declaration in registry.h; all else is in its folder.
#include "codec/registry.h"

namespace qccl {

namespace {

constinit const CodecEntry kNone = {
    .name = "none",
    .summary = "uncompressed",
    .layout = "the elements' own bytes, little-endian, in order",
    .bound = "0",
    .source = "",
    .settings = {},
};

// The index is Compression::codec, which ranks exchange: a new codec comes last.
constexpr const CodecEntry* kCodecs[] = {
    &kNone, &kCastCodec, &kMinmaxCodec, &kIntCodec, &kLosslessCodec, &kTopkCodec, &kSignCodec, &kH4Codec, &kAutoCodec,
};

}  // namespace

CodecList codec_list() { return kCodecs; }

}  // namespace qccl
