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

// No format of its own: the fastest of several codecs of about the same accuracy, or of no compression.
//
// choice/compression_trial.h tries the candidates in a group's own calls. Each call is sent as one of them, with
// its layout, rounding and bound, so the error of any call is at most the largest of theirs.
constexpr CodecSetting kAutoSettings[] = {
    {.key = "bits", .allowed = "2..8", .default_value = 8, .meaning = "of the candidates int and minmax"},
};

constinit const CodecEntry kAutoCodec = {
    .name = "auto",
    .summary = "none, int or minmax: the fastest in the group's own calls",
    .layout = "that of the chosen codec",
    .bound = "the larger one of int's and minmax's",
    .source = "",
    .settings = kAutoSettings,
    .candidates = [](const SettingValues& values) -> std::vector<Compression> {
      const int bits = values.whole("bits");
      return {none(), block_int({.bits = bits}), minmax({.bits = bits})};
    },
};

// The index is Compression::codec, which ranks exchange: a new codec comes last.
constexpr const CodecEntry* kCodecs[] = {
    &kNone,      &kCastCodec, &kMinmaxCodec, &kIntCodec,  &kLosslessCodec,
    &kTopkCodec, &kSignCodec, &kH4Codec,     &kAutoCodec, &kGridCodec,
};

}  // namespace

CodecList codec_list() { return kCodecs; }

Compression automatic(int bits) { return make_compression("auto", {{"bits", static_cast<double>(bits)}}); }

}  // namespace qccl
