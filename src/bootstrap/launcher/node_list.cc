#include "bootstrap/launcher/launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/text.h"

namespace qccl::bootstrap {
namespace {

// Slurm writes no longer numbers in a range.
constexpr std::size_t kMaxDigits = 9;

Failure unreadable(std::string_view list, std::string_view what) {
  return Failure(ErrorKind::invalid_argument, fmt::format("\"{}\" is no list of hosts: {}", list, what));
}

std::optional<std::uint32_t> to_number(std::string_view text) {
  return text.size() > kMaxDigits ? std::nullopt : parse_number<std::uint32_t>(text);
}

// The text before the first `mark` outside brackets; moves `text` past the mark.
std::string_view take_until(std::string_view& text, char mark) {
  bool inside = false;
  std::size_t end = 0;
  for (; end < text.size() && (text[end] != mark || inside); ++end) {
    if (text[end] == '[') inside = true;
    if (text[end] == ']') inside = false;
  }
  const auto front = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return front;
}

// "01-03,7" becomes 01 02 03 7.
Result<std::vector<std::string>> expand_ranges(std::string_view ranges) {
  std::vector<std::string> numbers;
  if (ranges.empty() || ranges.ends_with(',')) return unreadable(ranges, "a number is missing");
  while (!ranges.empty()) {
    const std::string_view range = take_until(ranges, ',');
    const auto dash = range.find('-');
    const std::string_view first = range.substr(0, dash);
    const auto low = to_number(first);
    const auto high = dash == std::string_view::npos ? low : to_number(range.substr(dash + 1));
    if (!low || !high || *high < *low) return unreadable(range, "expected numbers and ranges such as 01-16,20");
    if (*high - *low >= kMaxNodes - numbers.size()) return unreadable(range, "too many hosts");
    for (std::uint32_t number = *low; number <= *high; ++number) {
      numbers.push_back(fmt::format("{:0{}}", number, first.size()));
    }
  }
  return numbers;
}

// Expands one name, which may have brackets.
Result<std::vector<std::string>> expand_name(std::string_view name) {
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const auto open = name.find('[');
    const std::string_view plain = name.substr(0, open);
    if (plain.find(']') != std::string_view::npos) return unreadable(name, "a bracket is closed that was not opened");
    for (auto& each : names) each += plain;
    if (open == std::string_view::npos) break;
    const auto close = name.find(']', open);
    if (close == std::string_view::npos) return unreadable(name, "a bracket is not closed");
    QCCL_ASSIGN(const auto numbers, expand_ranges(name.substr(open + 1, close - open - 1)));
    if (names.size() * numbers.size() > kMaxNodes) return unreadable(name, "too many hosts");
    std::vector<std::string> longer;
    for (const auto& each : names) {
      for (const auto& number : numbers) longer.push_back(each + number);
    }
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> expand_node_list(std::string_view list) {
  std::vector<std::string> all;
  const std::string_view whole = list;
  if (list.empty() || list.ends_with(',')) return unreadable(whole, "a name is missing");
  while (!list.empty()) {
    const std::string_view name = take_until(list, ',');
    if (name.empty()) return unreadable(whole, "a name is missing");
    QCCL_ASSIGN(const auto names, expand_name(name));
    all.insert(all.end(), names.begin(), names.end());
    if (all.size() > kMaxNodes) return unreadable(whole, "too many hosts");
  }
  return all;
}

Result<std::vector<int>> expand_task_counts(std::string_view list) {
  std::vector<int> counts;
  const auto wrong = [whole = list] {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("\"{}\" does not say how many tasks nodes have: expected such as 4(x2),3", whole));
  };
  if (list.empty() || list.ends_with(',')) return wrong();
  while (!list.empty()) {
    std::string_view times = take_until(list, ',');
    const auto count = to_number(take_until(times, '('));
    std::optional<std::uint32_t> repeat = 1;
    if (times.starts_with('x') && times.ends_with(')')) {
      repeat = to_number(times.substr(1, times.size() - 2));
    } else if (!times.empty()) {
      repeat.reset();
    }
    if (!count || !repeat || *repeat > kMaxNodes - counts.size()) return wrong();
    counts.insert(counts.end(), *repeat, static_cast<int>(*count));
  }
  return counts;
}

}  // namespace qccl::bootstrap
