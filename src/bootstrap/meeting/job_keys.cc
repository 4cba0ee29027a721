#include "bootstrap/meeting/job_keys.h"

#include <fmt/format.h>

#include <charconv>

#include "bootstrap/launcher/membership.h"
#include "bootstrap/meeting/generation_result.h"
#include "bootstrap/store/key_space.h"
#include "bootstrap/store/store_protocol.h"

namespace qccl::bootstrap {

JobKeys::JobKeys(const std::string& job, std::uint32_t restart, int world)
    : prefix_(wire_key(key_prefix(job, restart))), world_(world) {}

// Each number has only one spelling; otherwise a key could be written in many ways.
std::optional<JobKeys::Parts> JobKeys::parts_of(std::string_view key) const {
  if (!key.starts_with(prefix_)) return std::nullopt;
  key.remove_prefix(prefix_.size());
  const auto number = [](std::string_view text) {
    int value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  const auto first = key.find('/');
  if (first == std::string_view::npos) return std::nullopt;
  const auto second = key.find('/', first + 1);
  const int generation = number(key);
  Parts parts{.name = key.substr(first + 1, second - first - 1)};
  if (generation < 1 || generation > kMaxGenerations) return std::nullopt;
  if (second == std::string_view::npos) {
    if (key != fmt::format("{}/{}", generation, parts.name)) return std::nullopt;
    return parts;
  }
  parts.rank = number(key.substr(second + 1));
  const bool is_rank = parts.rank > 0 && parts.rank < kMaxWorld;
  if (!is_rank || key != fmt::format("{}/{}/{}", generation, parts.name, parts.rank)) return std::nullopt;
  return parts;
}

bool JobKeys::may_add(std::string_view key, std::int64_t delta) const {
  if (delta == 0) return true;
  const auto parts = parts_of(key);
  if (!parts || delta != 1) return false;
  return parts->rank < 0 ? parts->name == "closed" : parts->name == "claim";
}

bool JobKeys::may_set(std::string_view key, std::string_view value) const {
  const auto parts = parts_of(key);
  if (!parts) return false;
  if (parts->rank > 0) return parts->name == "card" && decode_record(value).ok();
  if (parts->name == "failure") return value.size() <= kMaxReasonBytes;
  if (parts->name != "outcome") return false;
  auto outcome = decode_outcome(value);
  return outcome.ok() && outcome->kind == GenerationResult::Kind::failed && outcome->records.empty();
}

}  // namespace qccl::bootstrap
