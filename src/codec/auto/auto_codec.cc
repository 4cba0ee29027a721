#include "codec/auto/auto_codec.h"

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
    .summary = "none, int or minmax: what the group's own calls show to be the fastest",
    .layout = "that of what was chosen",
    .bound = "the larger one of int's and minmax's",
    .source = "",
    .settings = kSettings,
    .make = [](const SettingValues&) -> Result<std::shared_ptr<const Codec>> { return std::shared_ptr<const Codec>(); },
    .candidates = candidates,
};

Compression automatic(int bits) { return make_compression("auto", {{"bits", static_cast<double>(bits)}}); }

}  // namespace qccl
