// Compression values as text and as codecs, based on the list of codecs.
#include "qccl/compression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/text.h"
#include "codec/registry.h"

namespace qccl {
namespace {

struct Alternative {
  std::string_view word;  // empty: numbers
  double least = 0;       // for a word, both are its index
  double most = 0;
  bool real = false;
};

Alternative parse_alternative(std::string_view text, double index) {
  const auto dots = text.find("..");
  const auto least = parse_number<double>(text.substr(0, dots));
  if (!least) return {text, index, index};
  const std::string_view most = dots == std::string_view::npos ? text : text.substr(dots + 2);
  const auto is_real = [](std::string_view end) { return end.find_first_of(".e") != std::string_view::npos; };
  return {{}, *least, parse_number<double>(most).value(), is_real(text.substr(0, dots)) || is_real(most)};
}

// The first alternative for which `matches` holds.
template <class Matches>
std::optional<Alternative> find_alternative(const CodecSetting& setting, Matches matches) {
  std::string_view rest = setting.allowed;
  for (double index = 0;; ++index) {
    const auto bar = rest.find('|');
    const Alternative alternative = parse_alternative(rest.substr(0, bar), index);
    if (matches(alternative)) return alternative;
    if (bar == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(bar + 1);
  }
}

bool contains(const Alternative& alternative, double value) {
  const bool fits = alternative.real || value == std::floor(value);
  return fits && value >= alternative.least && value <= alternative.most;
}

Failure refusal(CodecList list, std::string_view spec, const std::string& why) {
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("compression '{}': {}; allowed: {}", spec, why, allowed_compressions(list)));
}

std::size_t index_of(std::span<const CodecSetting> settings, std::string_view key) {
  const auto found = std::find_if(settings.begin(), settings.end(), [&](const auto& s) { return s.key == key; });
  return static_cast<std::size_t>(found - settings.begin());
}

Compression default_value_of(CodecList list, std::size_t codec) {
  Compression value{.codec = static_cast<std::uint32_t>(codec)};
  const auto settings = list[codec]->settings;
  QCCL_CHECK(settings.size() <= Compression::kMaxSettings);
  for (std::size_t i = 0; i < settings.size(); ++i) value.settings[i] = settings[i].default_value;
  return value;
}

std::size_t codec_named(CodecList list, std::string_view name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto* entry) { return entry->name == name; });
  return static_cast<std::size_t>(found - list.begin());
}

// Reads "key=value,key=value" into `value`; returns the error in the text, or "".
std::string read_settings(const CodecEntry& entry, std::string_view text, Compression& value) {
  std::vector<std::string_view> seen;
  for (const std::string_view part : split(text, ',')) {
    const auto equals = part.find('=');
    if (equals == std::string_view::npos) return fmt::format("'{}' is not key=value", part);
    const std::string_view key = part.substr(0, equals);
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) return fmt::format("'{}' comes twice", key);
    seen.push_back(key);
    const std::size_t index = index_of(entry.settings, key);
    if (index == entry.settings.size()) return fmt::format("unknown key '{}'", key);
    const auto number = read_setting(entry.settings[index], part.substr(equals + 1));
    if (!number) return fmt::format("{} can't be '{}'", key, part.substr(equals + 1));
    value.settings[index] = *number;
  }
  return {};
}

// The error in the settings, or "".
std::string fault(const CodecEntry& entry, const Compression& value) {
  for (std::size_t i = 0; i < value.settings.size(); ++i) {
    const double number = value.settings[i];
    if (i >= entry.settings.size() && number != 0) return fmt::format("{} has no setting {}", entry.name, i);
    if (i < entry.settings.size() && !allows(entry.settings[i], number)) {
      return fmt::format("{} can't be {}", entry.settings[i].key, number);
    }
  }
  if (entry.conflict != nullptr) return std::string(entry.conflict({entry.settings, value.settings}));
  return {};
}

}  // namespace

std::optional<double> read_setting(const CodecSetting& setting, std::string_view text) {
  const auto real = parse_number<double>(text);
  const auto whole = parse_number<std::int64_t>(text);
  const auto found = find_alternative(setting, [&](const Alternative& alternative) {
    if (!alternative.word.empty()) return alternative.word == text;
    if (alternative.real) return real && contains(alternative, *real);
    return whole && contains(alternative, static_cast<double>(*whole));
  });
  if (!found) return std::nullopt;
  if (!found->word.empty()) return found->least;
  return *real + 0.0;  // no -0
}

bool allows(const CodecSetting& setting, double value) {
  return find_alternative(setting, [&](const Alternative& alternative) { return contains(alternative, value); })
      .has_value();
}

std::string write_setting(const CodecSetting& setting, double value) {
  const auto found =
      find_alternative(setting, [&](const Alternative& alternative) { return contains(alternative, value); });
  if (found && !found->word.empty()) return std::string(found->word);
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

const CodecEntry* entry_of(const Compression& compression, CodecList list) {
  return compression.codec < list.size() ? list[compression.codec] : nullptr;
}

bool is_automatic(const Compression& compression) {
  const CodecEntry* entry = entry_of(compression);
  return entry != nullptr && entry->candidates != nullptr;
}

std::vector<Compression> candidates_of(const Compression& automatic) {
  const CodecEntry& entry = *entry_of(automatic);
  return entry.candidates({entry.settings, automatic.settings});
}

std::vector<Compression> examples_of(const CodecEntry& entry) {
  if (entry.examples.empty()) return {Compression::parse(entry.name)};
  std::vector<Compression> examples;
  for (const std::string_view spec : split(entry.examples, ' ')) examples.push_back(Compression::parse(spec));
  return examples;
}

double SettingValues::number(std::string_view key) const {
  const std::size_t index = index_of(settings_, key);
  QCCL_CHECK(index < settings_.size());
  return values_[index];
}

std::string SettingValues::word(std::string_view key) const {
  return write_setting(settings_[index_of(settings_, key)], number(key));
}

std::string allowed_compressions(CodecList list) {
  std::string text;
  for (const CodecEntry* entry : list) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", entry->name);
    char separator = ':';
    for (const CodecSetting& setting : entry->settings) {
      text += fmt::format("{}{}={}", std::exchange(separator, ','), setting.key, setting.allowed);
    }
  }
  return text;
}

Result<Compression> parse_compression(std::string_view spec, CodecList list) {
  const auto colon = spec.find(':');
  const std::string_view name = spec.substr(0, colon);
  const std::size_t codec = codec_named(list, name);
  if (codec == list.size()) return refusal(list, spec, fmt::format("unknown codec '{}'", name));
  Compression value = default_value_of(list, codec);
  std::string wrong;
  if (colon != std::string_view::npos) wrong = read_settings(*list[codec], spec.substr(colon + 1), value);
  if (!wrong.empty()) return refusal(list, spec, wrong);
  auto made = make_codec(value, list);
  if (!made.ok()) return made.failure();
  return value;
}

std::string to_string(const Compression& compression, CodecList list) {
  const CodecEntry* entry = entry_of(compression, list);
  if (entry == nullptr) return fmt::format("codec {}", compression.codec);
  std::string text(entry->name);
  char separator = ':';
  for (std::size_t i = 0; i < entry->settings.size(); ++i) {
    const CodecSetting& setting = entry->settings[i];
    const double value = compression.settings[i];
    if (setting.quiet_if_default && value == setting.default_value) continue;
    text += fmt::format("{}{}={}", std::exchange(separator, ','), setting.key, write_setting(setting, value));
  }
  return text;
}

Result<std::shared_ptr<const Codec>> make_codec(const Compression& compression, CodecList list) {
  const CodecEntry* entry = entry_of(compression, list);
  if (entry == nullptr) return refusal(list, to_string(compression, list), "there is no such codec");
  if (const auto wrong = fault(*entry, compression); !wrong.empty()) {
    return refusal(list, to_string(compression, list), wrong);
  }
  if (entry->make == nullptr) return std::shared_ptr<const Codec>();
  return entry->make({entry->settings, compression.settings});
}

Result<std::shared_ptr<const Codec>> make_codec(const Compression& compression) {
  return make_codec(compression, codec_list());
}

Compression make_compression(std::string_view name, std::initializer_list<SettingValue> values) {
  const CodecList list = codec_list();
  const std::size_t codec = codec_named(list, name);
  QCCL_CHECK(codec < list.size());
  Compression made = default_value_of(list, codec);
  for (const SettingValue& setting : values) {
    const std::size_t index = index_of(list[codec]->settings, setting.key);
    QCCL_CHECK(index < list[codec]->settings.size());
    made.settings[index] = setting.value;
  }
  // Programs write this in their calls, so it makes no codec and allocates nothing.
  const std::string wrong = fault(*list[codec], made);
  if (!wrong.empty()) throw Error(refusal(list, to_string(made, list), wrong).info());
  return made;
}

std::string_view Compression::name() const {
  const CodecEntry* entry = entry_of(*this);
  return entry != nullptr ? entry->name : "unknown";
}

double Compression::setting(std::string_view key) const {
  const CodecEntry* entry = entry_of(*this);
  const std::size_t index = entry != nullptr ? index_of(entry->settings, key) : 0;
  if (entry != nullptr && index < entry->settings.size()) return settings[index];
  throw Error({.kind = ErrorKind::invalid_argument, .message = fmt::format("{} has no setting '{}'", name(), key)});
}

Compression Compression::parse(std::string_view spec) { return parse_compression(spec).take_or_throw(); }

std::string Compression::to_string() const { return qccl::to_string(*this, codec_list()); }

}  // namespace qccl
