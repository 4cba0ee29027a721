#include "observe/status_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "base/text.h"

namespace qccl {
namespace {

using Json = nlohmann::ordered_json;

// ---- Writing

std::string text_of_json(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

template <class Field>
Json json_of_field(const Field& field) {
  return field;
}
Json json_of_field(const char& letter) { return std::string(1, letter); }

template <class Record>
Json fields_of_record(const Record& record) {
  Json object = Json::object();
  visit_fields(record, [&](const char* key, const auto& field) { object[key] = json_of_field(field); });
  return object;
}

Json json_of_rank(const RankStatus& rank) {
  Json object = fields_of_record(rank);
  object["last"] = fields_of_record(rank.last);
  visit_lists_of(rank, [&](const char* key, const auto& list) {
    Json& written = object[key] = Json::array();
    for (const auto& each : list) written.push_back(fields_of_record(each));
  });
  return object;
}

// Halves the longest list; false if all are empty.
bool halve_longest(RankStatus& status) {
  std::size_t longest = status.warnings.size();
  visit_lists_of(status, [&](const char*, const auto& list) { longest = std::max(longest, list.size()); });
  if (longest == 0) return false;
  const auto halve = [longest](auto& list) {
    if (list.size() == longest) list.erase(list.begin() + static_cast<std::ptrdiff_t>(longest / 2), list.end());
  };
  halve(status.warnings);
  visit_lists_of(status, [&](const char*, auto& list) { halve(list); });
  return true;
}

// ---- Reading: a field of another type is an error, one that is not there keeps its value.

class FieldsOf {
 public:
  explicit FieldsOf(const Json& object) : object_(object), good_(object.is_object()) {}

  bool good() const { return good_; }
  void operator()(const char* key, std::string& field) {
    if (const Json* const found = find(key, &Json::is_string)) field = printable(found->get_ref<const std::string&>());
  }
  void operator()(const char* key, char& field) {
    std::string text(1, field);
    (*this)(key, text);
    good_ = good_ && text.size() == 1;
    if (good_) field = text[0];
  }
  void operator()(const char* key, bool& field) {
    if (const Json* const found = find(key, &Json::is_boolean)) field = found->get<bool>();
  }
  void operator()(const char* key, double& field) {
    if (const Json* const found = find(key, &Json::is_number)) field = found->get<double>();
  }
  template <class Number>
  requires std::is_integral_v<Number>
  void operator()(const char* key, Number& field) {
    const Json* const found = find(key, &Json::is_number_integer);
    if (found == nullptr) return;
    const bool is_large = found->is_number_unsigned() && found->get<std::uint64_t>() > INT64_MAX;
    good_ = is_large ? std::is_same_v<Number, std::uint64_t> : std::in_range<Number>(found->get<std::int64_t>());
    if (good_) field = found->get<Number>();
  }
  void operator()(const char* key, std::vector<int>& field) { read_list(key, field, &Json::is_number_integer); }
  void operator()(const char* key, std::vector<std::string>& field) { read_list(key, field, &Json::is_string); }
  // A list of structures.
  template <class Record>
  void records(const char* key, std::vector<Record>& list) {
    const Json* const found = find(key, &Json::is_array);
    if (found == nullptr) return;
    for (const Json& each : *found) {
      FieldsOf fields(each);
      visit_fields(list.emplace_back(), [&](const char* name, auto& field) { fields(name, field); });
      good_ = good_ && fields.good();
    }
  }
  template <class Record>
  void record(const char* key, Record& target) {
    const Json* const found = find(key, &Json::is_object);
    if (found == nullptr) return;
    FieldsOf fields(*found);
    visit_fields(target, [&](const char* name, auto& field) { fields(name, field); });
    good_ = good_ && fields.good();
  }

 private:
  using Check = bool (Json::*)() const noexcept;

  const Json* find(const char* key, Check has_type) {
    if (!good_) return nullptr;
    const auto found = object_.find(key);
    if (found == object_.end()) return nullptr;
    good_ = ((*found).*has_type)();
    return good_ ? &*found : nullptr;
  }
  template <class Value>
  void read_list(const char* key, std::vector<Value>& field, Check has_type) {
    const Json* const found = find(key, &Json::is_array);
    if (found == nullptr) return;
    field.clear();
    for (const Json& each : *found) {
      good_ = good_ && (each.*has_type)();
      if (!good_) return;
      if constexpr (std::is_same_v<Value, std::string>) {
        field.push_back(printable(each.get_ref<const std::string&>()));
      } else {
        good_ = std::in_range<Value>(each.get<std::int64_t>());
        field.push_back(each.get<Value>());
      }
    }
  }

  const Json& object_;
  bool good_;
};

bool read_rank(const Json& json, RankStatus& status) {
  FieldsOf fields(json);
  visit_fields(status, [&](const char* key, auto& field) { fields(key, field); });
  fields.record("last", status.last);
  visit_lists_of(status, [&](const char* key, auto& list) { fields.records(key, list); });
  return fields.good();
}

Failure no_status(std::string_view text) {
  constexpr std::size_t kShown = 80;
  return Failure(ErrorKind::corrupt_data, fmt::format("\"{}\" is no rank's status", printable(text.substr(0, kShown))));
}

}  // namespace

std::string to_json(const RankStatus& rank) { return text_of_json(json_of_rank(rank)); }

std::string to_json(std::span<const JobStatus> jobs) {
  Json list = Json::array();
  for (const JobStatus& job : jobs) {
    const HoldUp hold_up = find_hold_up(job.ranks);
    Json ranks = Json::array();
    for (const RankStatus& rank : job.ranks) ranks.push_back(json_of_rank(rank));
    list.push_back(Json{
        {"job", job.job},
        {"user", job.user},
        {"hold_up",
         {{"rank", hold_up.rank}, {"waiting", hold_up.waiting}, {"seconds", hold_up.seconds}, {"text", hold_up.text}}},
        {"ranks", std::move(ranks)}});
  }
  return text_of_json(list);
}

}  // namespace qccl

namespace qccl::internal {

std::string encode_status(RankStatus status, std::size_t limit) {
  std::string text = to_json(status);
  while (text.size() > limit && halve_longest(status)) text = to_json(status);
  return text;
}

std::string encode_statuses(const std::vector<RankStatus>& ranks) {
  Json list = Json::array();
  for (const RankStatus& rank : ranks) list.push_back(json_of_rank(rank));
  return text_of_json(list);
}

Status decode_status(std::string_view text, RankStatus& status) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !read_rank(json, status)) return no_status(text);
  return {};
}

Result<std::vector<RankStatus>> decode_statuses(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || !json.is_array()) return no_status(text);
  std::vector<RankStatus> ranks;
  for (const Json& each : json) {
    if (!read_rank(each, ranks.emplace_back())) return no_status(text);
  }
  return ranks;
}

}  // namespace qccl::internal
