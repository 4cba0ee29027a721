// `qccl codec list` and `qccl codec show`: print the entries of the codec list.
#include <fmt/format.h>
#include <qccl/qccl.h>

#include <cstdio>

#include "base/options.h"
#include "codec/geometry.h"
#include "codec/registry.h"
#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr const char* kListFooter = "Example:\n  qccl codec list\n\nExit code: 0; 2 for wrong flags.\n";
constexpr const char* kCodecFooter =
    R"(Bits an element are those of a slice, the piece that is encoded at once, headers included; where the
values decide, they are the most, and what gradients of float32 are expected to take. The bound is that of the
codec's own definition.

Exit code: 0; 2 for wrong flags or a codec that does not exist.

Examples:
  qccl codec show minmax
  qccl codec show minmax:bits=3,bucket_size=64
)";

// Indents all lines of the text but the first by `blanks`.
std::string indented(std::string_view text, int blanks) {
  std::string result;
  for (const char letter : text) {
    result += letter;
    if (letter == '\n') result.append(static_cast<std::size_t>(blanks), ' ');
  }
  return result;
}

// "bits=1..32 (8), bucket_size=1..65536 (1024)"
std::string settings_text(const CodecEntry& entry) {
  std::string text;
  for (const CodecSetting& setting : entry.settings) {
    text += fmt::format("{}{}={} ({})", text.empty() ? "" : ", ", setting.key, setting.allowed,
                        write_setting(setting, setting.default_value));
  }
  return text;
}

void print_size(const Codec& codec) {
  const std::uint64_t elements = slice_elements(&codec, DataType::float32, kDefaultSliceBytes);
  const std::size_t bytes = codec.max_encoded_bytes(elements);
  const double bits = 8.0 * static_cast<double>(bytes) / static_cast<double>(elements);
  const std::string ratio = bits <= 32 ? fmt::format("{:.2f} times smaller than", 32 / bits)
                                       : fmt::format("{:.2f} times the size of", bits / 32);
  fmt::print("{:<10}{:.4g} bits an element at most: {} bytes for a slice of {} elements, {} float32\n", "size", bits,
             bytes, elements, ratio);
  const double expected = 8 * expected_element_bytes(&codec, DataType::float32, elements);
  if (expected < bits) fmt::print("{:<10}{:.4g} bits expected of gradients, which prices assume\n", "", expected);
  fmt::print("{:<10}{} element{}\n", "bucket", codec.bucket_size(), codec.bucket_size() == 1 ? "" : "s");
}

int show(const Compression& compression) {
  const CodecEntry& entry = *entry_of(compression);
  fmt::print("{}\n{}\n\n", compression.to_string(), entry.summary);
  for (std::size_t i = 0; i < entry.settings.size(); ++i) {
    const CodecSetting& setting = entry.settings[i];
    fmt::print("{:<10}{} = {} (allowed: {}; default: {}): {}\n", i == 0 ? "settings" : "", setting.key,
               write_setting(setting, compression.settings[i]), setting.allowed,
               write_setting(setting, setting.default_value), setting.meaning);
  }
  const auto codec = make_codec(compression).take_or_throw();
  if (codec != nullptr) print_size(*codec);
  fmt::print("{:<10}{}\n", "layout", indented(entry.layout, 10));
  fmt::print("{:<10}{}\n", "error", indented(entry.bound, 10));
  if (codec != nullptr) {
    fmt::print("{:<10}at most {:.3g} for a bucket of values from -1 to 1\n", "", codec->error_bound({-1, 1}));
  }
  if (!entry.source.empty()) fmt::print("{:<10}{}\n", "source", indented(entry.source, 10));
  return 0;
}

}  // namespace

int codec_list_main(const std::vector<std::string>& arguments) {
  CommandLine app("Lists all codecs with their settings: what is allowed and, in brackets, the default.",
                  "qccl codec list", "", kListFooter);
  if (auto code = app.read(arguments)) return *code;
  for (const CodecEntry* entry : codec_list()) {
    fmt::print("{:<9} {}\n", entry->name, entry->summary);
    if (!entry->settings.empty()) fmt::print("{:<9} {}\n", "", settings_text(*entry));
  }
  return 0;
}

int codec_show_main(const std::vector<std::string>& arguments) {
  CommandLine app("Explains one codec.", "qccl codec show", "SPEC", kCodecFooter);
  std::string spec;
  app.add_option("SPEC", spec, "The codec, for example minmax:bits=3")->required();
  if (auto code = app.read(arguments)) return *code;
  auto compression = parse_compression(spec);
  if (compression.ok()) return show(*compression);
  fmt::print(stderr, "qccl codec show: {}\n", compression.error().message);
  return kExitUsage;
}

}  // namespace qccl::tools
