// The list of codecs: the only source for the parser, `qccl codec`, the documentation and the tests.
// docs/add-a-codec.md shows how to add one.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/codec.h"

namespace qccl {

// A codec's setting and its allowed values: one text controls reading, checking and writing.
struct CodecSetting {
  std::string_view key;
  // Alternatives: whole numbers and ranges of them ("1..8|16|32"), ranges of real numbers, of which an end has a point
  // or an exponent ("0.001..1", "1e-9..1"), or words ("nearest|stochastic"), whose values are their indices from 0.
  std::string_view allowed;
  double default_value = 0;       // if the setting is left out
  std::string_view meaning{};     // one line
  bool quiet_if_default = false;  // texts then omit it
};

// The setting's value in that text, if it is allowed.
std::optional<double> read_setting(const CodecSetting& setting, std::string_view text);
// Whether the setting allows this number.
bool allows(const CodecSetting& setting, double value);
// The text that read_setting() reads back. Only for allowed values.
std::string write_setting(const CodecSetting& setting, double value);

// The settings of one Compression, by name.
class SettingValues {
 public:
  SettingValues(std::span<const CodecSetting> settings, std::span<const double> values)
      : settings_(settings), values_(values) {}

  // QCCL_CHECK: the setting must exist.
  double number(std::string_view key) const;
  int whole(std::string_view key) const { return static_cast<int>(number(key)); }
  // "nearest", "true", ...
  std::string word(std::string_view key) const;

 private:
  std::span<const CodecSetting> settings_;
  std::span<const double> values_;
};

// The setting of codecs with random rounding. Its values are in the order of enum Rounding.
inline constexpr CodecSetting kRoundingSetting = {
    .key = "rounding",
    .allowed = "nearest|stochastic",
    .default_value = 0,
    .meaning = "stochastic: up or down at random so that the mean is right, stratified over ranks",
    .quiet_if_default = true,
};
inline bool is_stochastic(const SettingValues& values) { return values.word("rounding") == "stochastic"; }

// One codec. Lives in the codec's own folder; all text is for people.
struct CodecEntry {
  std::string_view name;
  std::string_view summary;                // one line
  std::string_view layout;                 // the byte table of its header
  std::string_view bound;                  // largest error of an element, as a formula
  std::string_view source;                 // paper or format; every codec of the library has one
  std::span<const CodecSetting> settings;  // at most Compression::kMaxSettings
  // Called only with values that the settings allow; null for an entry that has no format.
  std::shared_ptr<const Codec> (*make)(const SettingValues& values) = nullptr;
  // float16 and bfloat16 are sent uncompressed, because the codec would not make them smaller.
  bool only_float32 = false;
  // For settings that exclude each other: why these values can't be together, or "".
  std::string_view (*conflict)(const SettingValues& values) = nullptr;
  // For an entry that stands for others: what a call may be sent as, none first.
  std::vector<Compression> (*candidates)(const SettingValues& values) = nullptr;
  // The specifications that benchmarks run and tests try, separated by blanks. Empty: the default one.
  std::string_view examples{};
};

// CodecEntry::make of a codec that is constructed from its settings.
template <class C>
std::shared_ptr<const Codec> make(const SettingValues& values) {
  return std::make_shared<C>(values);
}

// Defined in the codecs' folders.
extern const CodecEntry kCastCodec, kMinmaxCodec, kIntCodec, kLosslessCodec, kTopkCodec, kSignCodec, kH4Codec,
    kGridCodec;

using CodecList = std::span<const CodecEntry* const>;

// All codecs of the library; the first one is none. A Compression's `codec` is an index in it.
CodecList codec_list();
// The entry of the value's codec; null if the list does not have it.
const CodecEntry* entry_of(const Compression& compression, CodecList list = codec_list());

// Whether the value stands for others, and for which.
bool is_automatic(const Compression& compression);
std::vector<Compression> candidates_of(const Compression& automatic);
// The entry's examples, in order.
std::vector<Compression> examples_of(const CodecEntry& entry);

// Compression::parse() and the rest for any list. InvalidArgument lists what is allowed.
Result<Compression> parse_compression(std::string_view spec, CodecList list = codec_list());
std::string to_string(const Compression& compression, CodecList list);
Result<std::shared_ptr<const Codec>> make_codec(const Compression& compression, CodecList list);
// "none, cast:type=bf16|fp16, minmax:bits=1..32,bucket_size=1..65536"
std::string allowed_compressions(CodecList list = codec_list());

// For a codec's own factory: a value with these settings and defaults for the rest. Throws Error(invalid_argument),
// which lists what is allowed.
struct SettingValue {
  std::string_view key;
  double value;
};
Compression make_compression(std::string_view name, std::initializer_list<SettingValue> values);

}  // namespace qccl
