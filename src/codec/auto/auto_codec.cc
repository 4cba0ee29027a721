// No format of its own: the fastest of several codecs of about the same accuracy, or of no compression.
//
// comm/auto/compression_trial.h tries the candidates in a group's own calls. Each call is sent as one of them, with
// its layout, rounding and bound, so the error of any call is at most the largest of theirs.
#include "codec/registry.h"

namespace qccl {
namespace {

constexpr CodecSetting kSettings[] = {
    {.key = "bits", .allowed = "2..8", .default_value = 8, .meaning = "of the candidates int and minmax"},
};

std::vector<Compression> candidates(const SettingValues& values) {
  const int bits = values.whole("bits");
  return {none(), block_int({.bits = bits}), minmax({.bits = bits})};
}

}  // namespace

constinit const CodecEntry kAutoCodec = {
    .name = "auto",
    .summary = "none, int or minmax: the fastest in the group's own calls",
    .layout = "that of the chosen codec",
    .bound = "the larger one of int's and minmax's",
    .source = "",
    .settings = kSettings,
    .candidates = candidates,
};

Compression automatic(int bits) { return make_compression("auto", {{"bits", static_cast<double>(bits)}}); }

}  // namespace qccl
