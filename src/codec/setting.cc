#include "codec/setting.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace qccl {
namespace {

struct Alternative {
  std::string_view word;  // empty: numbers
  double least = 0;       // for a word, both are its index
  double most = 0;
  bool real = false;
};

Alternative parse_alternative(std::string_view text, double place) {
  const bool is_word = (text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z');
  if (is_word) return {text, place, place};
  const auto dots = text.find("..");
  const std::string_view least = text.substr(0, dots);
  const std::string_view most = dots == std::string_view::npos ? least : text.substr(dots + 2);
  return {{},
          parse_number<double>(least).value(),
          parse_number<double>(most).value(),
          most.find('.') != std::string_view::npos};
}

// The first alternative for which `matches` holds.
template <class Matches>
std::optional<Alternative> find_alternative(const CodecSetting& setting, Matches matches) {
  std::string_view rest = setting.allowed;
  for (double place = 0;; ++place) {
    const auto bar = rest.find('|');
    const Alternative alternative = parse_alternative(rest.substr(0, bar), place);
    if (matches(alternative)) return alternative;
    if (bar == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(bar + 1);
  }
}

bool contains(const Alternative& alternative, double value) {
  const bool fits = alternative.real || value == std::floor(value);
  return fits && value >= alternative.least && value <= alternative.most;
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

}  // namespace qccl
