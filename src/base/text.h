// Text from outside: its parts, numbers in it, and what of it can be printed.
#pragma once

#include <charconv>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// `text` with a blank for every control character (C0, DEL and C1, hence also for line ends and tabs) and '?' for every
// byte that is not UTF-8: the result moves no cursor and changes no colour of a terminal.
std::string printable(std::string_view text);

// 0.00123 to "1.23 ms".
std::string time_text(double seconds);
// "5.0 s".
std::string seconds_text(std::chrono::nanoseconds duration);

// The number that the whole text spells; empty for any other text and for a number beyond T.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

// The parts of `text` between separators: one more than it has separators.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (auto at = text.find(separator); at != std::string_view::npos; at = text.find(separator)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + 1);
  }
  parts.push_back(text);
  return parts;
}

}  // namespace qccl
