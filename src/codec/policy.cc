#include "qccl/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/text.h"
#include "codec/registry.h"
#include "qccl/error.h"

namespace qccl {
namespace {

constexpr std::string_view kGrammar =
    "a policy is rules between semicolons, [name=GLOB|GLOB] [bytes=64K..] [dims=2..] [type=float32|float16|bfloat16] "
    "SPEC [@STEP SPEC]..., and warmup=STEPS; a SPEC is a compression or budget=BITS";
constexpr std::string_view kBudget = "budget=";
constexpr double kMostBits = 32;
constexpr DataType kTypes[] = {DataType::float32, DataType::float16, DataType::bfloat16};

std::vector<std::string_view> words_of(std::string_view text) {
  auto words = split(text, ' ');
  std::erase(words, "");
  return words;
}

// "64K", "3"
std::optional<std::uint64_t> read_size(std::string_view text) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(stopped, static_cast<std::size_t>(end - stopped));
  const int shift = unit.empty() ? 0 : unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : -1;
  if (shift < 0 || value > UINT64_MAX >> shift) return std::nullopt;
  return value << shift;
}

std::string size_text(std::uint64_t size) {
  for (const auto& [shift, unit] : {std::pair(30, "G"), std::pair(20, "M"), std::pair(10, "K")}) {
    if (size != 0 && size % (std::uint64_t{1} << shift) == 0) return fmt::format("{}{}", size >> shift, unit);
  }
  return fmt::format("{}", size);
}

// Takes linear time in name and pattern except for stars: after a failure only the last star takes one more character.
bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, after_star = std::string_view::npos, star_end = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (after_star != std::string_view::npos) {
      p = after_star;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<std::ptrdiff_t>(p), pattern.end(), [](char c) { return c == '*'; });
}

}  // namespace

class PolicyParser {
 public:
  explicit PolicyParser(std::string_view text) : text_(text) {}

  Policy parse() {
    for (const std::string_view item : split(text_, ';')) {
      const auto words = words_of(item);
      if (words.empty()) refuse("a rule is empty");
      if (words.size() == 1 && words[0].starts_with("warmup=")) {
        read_warm_up(words[0].substr(7));
      } else {
        policy_.rules_.push_back(read_rule(words));
      }
    }
    return std::move(policy_);
  }

 private:
  using Range = Policy::Range;
  using Rule = Policy::Rule;

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(
        {.kind = ErrorKind::invalid_argument, .message = fmt::format("policy '{}': {}; {}", text_, why, kGrammar)});
  }

  void read_warm_up(std::string_view steps) {
    const auto number = read_size(steps);
    if (!number) refuse(fmt::format("warmup can't be '{}'", steps));
    if (std::exchange(has_warm_up_, true)) refuse("'warmup' comes twice");
    policy_.warm_up_steps_ = *number;
  }

  // Reads conditions, then a compression for each stage.
  Rule read_rule(const std::vector<std::string_view>& words) const {
    Rule rule;
    std::vector<std::string_view> seen;
    std::size_t at = 0;
    for (; at < words.size(); ++at) {
      const auto equals = words[at].find('=');
      if (equals == std::string_view::npos || words[at].find(':') < equals) break;
      if (words[at].starts_with(kBudget)) break;
      const std::string_view key = words[at].substr(0, equals);
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) refuse(fmt::format("'{}' comes twice", key));
      seen.push_back(key);
      read_condition(key, words[at].substr(equals + 1), rule);
    }
    read_stages({words.begin() + static_cast<std::ptrdiff_t>(at), words.end()}, rule);
    return rule;
  }

  void read_condition(std::string_view key, std::string_view value, Rule& rule) const {
    if (key == "name") {
      for (const std::string_view glob : split(value, '|')) rule.names.emplace_back(glob);
    } else if (key == "bytes") {
      rule.bytes = read_range(key, value);
    } else if (key == "dims") {
      rule.dimensions = read_range(key, value);
    } else if (key == "type") {
      for (const std::string_view name : split(value, '|')) rule.types.push_back(read_type(name));
    } else {
      refuse(fmt::format("unknown condition '{}'", key));
    }
  }

  Range read_range(std::string_view key, std::string_view text) const {
    const auto dots = text.find("..");
    const bool is_range = dots != std::string_view::npos;
    const std::string_view low = text.substr(0, dots), high = is_range ? text.substr(dots + 2) : low;
    Range range;
    const auto least = read_size(low), most = read_size(high);
    const bool is_bad = (!low.empty() && !least) || (!high.empty() && !most) || (low.empty() && high.empty());
    range.least = least.value_or(0);
    range.most = most.value_or(UINT64_MAX);
    if (is_bad || range.least > range.most) refuse(fmt::format("{} can't be '{}'", key, text));
    return range;
  }

  DataType read_type(std::string_view name) const {
    for (const DataType type : kTypes) {
      if (name == qccl::to_string(type)) return type;
    }
    refuse(fmt::format("type can't be '{}'", name));
  }

  void read_stages(const std::vector<std::string_view>& words, Rule& rule) const {
    std::uint64_t first_step = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (i % 2 == 0) {
        rule.stages.push_back(read_stage(first_step, words[i]));
        continue;
      }
      const auto step = words[i][0] == '@' ? read_size(words[i].substr(1)) : std::nullopt;
      if (!step || *step <= first_step) refuse(fmt::format("'{}' is no @STEP after step {}", words[i], first_step));
      first_step = *step;
    }
    if (words.size() % 2 == 0) refuse("a rule ends with a compression");
  }

  Policy::Stage read_stage(std::uint64_t first_step, std::string_view word) const {
    if (word.starts_with(kBudget)) {
      const auto bits = parse_number<double>(word.substr(kBudget.size()));
      if (!bits || !(*bits > 0 && *bits <= kMostBits)) {
        refuse(fmt::format("'{}' is not above 0 and at most {} bits an element", word, kMostBits));
      }
      return {first_step, grid({.entropy = true}), *bits};
    }
    auto compression = parse_compression(word);
    if (!compression.ok()) refuse(compression.error().message);
    return {first_step, *compression};
  }

  const std::string_view text_;
  bool has_warm_up_ = false;
  Policy policy_;
};

Policy Policy::parse(std::string_view text) { return PolicyParser(text).parse(); }

bool Policy::Rule::fits(const TensorInfo& tensor) const {
  const auto is_in = [](const Range& range, std::uint64_t value) {
    return value >= range.least && value <= range.most;
  };
  const bool named = names.empty() || std::any_of(names.begin(), names.end(),
                                                  [&](const std::string& glob) { return matches(glob, tensor.name); });
  const bool typed = types.empty() || std::find(types.begin(), types.end(), tensor.type) != types.end();
  return named && typed && is_in(dimensions, static_cast<std::uint64_t>(tensor.dimensions)) &&
         is_in(bytes, tensor.count * element_bytes(tensor.type));
}

const Policy::Stage* Policy::stage_of(const TensorInfo& tensor, std::uint64_t step) const {
  if (step < warm_up_steps_) return nullptr;
  if (std::find(std::begin(kTypes), std::end(kTypes), tensor.type) == std::end(kTypes)) return nullptr;
  const auto rule = std::find_if(rules_.begin(), rules_.end(), [&](const Rule& r) { return r.fits(tensor); });
  if (rule == rules_.end()) return nullptr;
  const auto later = std::find_if(rule->stages.begin() + 1, rule->stages.end(),
                                  [&](const Stage& stage) { return stage.first_step > step; });
  return &*(later - 1);
}

Compression Policy::choose(const TensorInfo& tensor, std::uint64_t step) const {
  const Stage* stage = stage_of(tensor, step);
  return stage == nullptr ? none() : stage->compression;
}

double Policy::budget(const TensorInfo& tensor, std::uint64_t step) const {
  const Stage* stage = stage_of(tensor, step);
  return stage == nullptr ? 0 : stage->budget;
}

std::string Policy::Rule::to_string() const {
  const auto range_text = [](const Range& range) {
    if (range.least == range.most) return size_text(range.least);
    return size_text(range.least) + ".." + (range.most == UINT64_MAX ? "" : size_text(range.most));
  };
  std::string text;
  if (!names.empty()) text += fmt::format("name={} ", fmt::join(names, "|"));
  if (bytes != Rule().bytes) text += fmt::format("bytes={} ", range_text(bytes));
  if (dimensions != Rule().dimensions) text += fmt::format("dims={} ", range_text(dimensions));
  std::vector<std::string_view> type_names;
  for (const DataType type : types) type_names.push_back(qccl::to_string(type));
  if (!types.empty()) text += fmt::format("type={} ", fmt::join(type_names, "|"));
  for (const Stage& stage : stages) {
    if (stage.first_step > 0) text += fmt::format(" @{} ", stage.first_step);
    text += stage.budget > 0 ? fmt::format("{}{}", kBudget, stage.budget) : stage.compression.to_string();
  }
  return text;
}

std::string Policy::to_string() const {
  std::string text;
  if (warm_up_steps_ > 0 || rules_.empty()) text = fmt::format("warmup={}", warm_up_steps_);
  for (const Rule& rule : rules_) text += (text.empty() ? "" : "; ") + rule.to_string();
  return text;
}

}  // namespace qccl
