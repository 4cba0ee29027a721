// A codec's setting and its allowed values: one text controls reading, checking and writing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qccl {

struct CodecSetting {
  std::string_view key;
  // Alternatives: whole numbers and ranges of them ("1..8|16|32"), ranges of real numbers, which have a point
  // ("0.001..1.0"), or words ("nearest|stochastic"), whose values are their indices from 0.
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

}  // namespace qccl
