// A codec's setting and the values that it may have: read, checked and written by one text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qccl {

struct CodecSetting {
  std::string_view key;
  // Alternatives: whole numbers and ranges of them ("1..8|16|32"), ranges of real numbers, which have a
  // point ("0.001..1.0"), or words ("nearest|stochastic"), whose values are their places from 0.
  std::string_view allowed;
  double default_value = 0;       // where it is left out
  std::string_view meaning{};     // one line
  bool quiet_if_default = false;  // texts then leave it out
};

// Its value, if that text is allowed.
std::optional<double> read_setting(const CodecSetting& setting, std::string_view text);
// Whether a number is one of its values.
bool allows(const CodecSetting& setting, double value);
// As read_setting() reads it. Only for values that it allows.
std::string write_setting(const CodecSetting& setting, double value);

}  // namespace qccl
