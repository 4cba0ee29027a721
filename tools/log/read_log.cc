#include "tools/log/read_log.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <stdexcept>

namespace qccl::tools {
namespace {

constexpr int kFormatVersion = 1;

// The enumerator of that name. Tries 64 values, more than any of the enumerations has.
template <class Enum>
Enum value_named(const std::string& name) {
  for (int i = 0; i < 64; ++i) {
    if (to_string(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  throw std::invalid_argument(fmt::format("it has '{}', which is not known here", name));
}

template <class Field>
void read_field(const LogJson& value, Field& field) {
  if constexpr (std::is_same_v<Field, bool>) {
    field = value.get<int>() != 0;
  } else if constexpr (std::is_same_v<Field, double>) {
    field = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();  // JSON has no NaN
  } else if constexpr (std::is_enum_v<Field>) {
    const auto name = value.get<std::string>();
    if (!name.empty()) field = value_named<Field>(name);  // a message has no algorithm
  } else {
    value.get_to(field);
  }
}
void read_field(const LogJson& value, Compression& field) { field = Compression::parse(value.get<std::string>()); }
void read_field(const LogJson& value, Hexadecimal<std::uint64_t> field) {
  field.number = std::stoull(value.get<std::string>(), nullptr, 16);
}

template <class Fields>
Fields fields_in(const LogJson& object) {
  Fields fields;
  visit_fields(fields, [&](const char* key, auto&& field) { read_field(object.at(key), field); });
  return fields;
}

}  // namespace

void refuse_log(const std::string& path, const std::string& what) {
  throw Error({.kind = ErrorKind::invalid_argument, .message = fmt::format("{}: {}", path, what)});
}

LogJson parse_log(const std::string& path) {
  std::ifstream file(path);
  if (!file) refuse_log(path, "there is no such file, or it can't be read");
  LogJson document = LogJson::parse(file, nullptr, false);
  if (document.is_discarded()) refuse_log(path, "no log of QCCL, or not all of it: it is not JSON");
  check_log(path, document);
  return document;
}

void check_log(const std::string& path, const LogJson& document) {
  if (!document.is_object() || !document.contains("qccl")) {
    refuse_log(path, "no log of QCCL: QCCL_LOG_FILE=PREFIX makes programs write one");
  }
  const LogJson version = document["qccl"].value("version", LogJson());
  if (version != kFormatVersion) {
    refuse_log(path, fmt::format("of version {} of the format; this program reads {}", version.dump(), kFormatVersion));
  }
}

std::vector<RankLog> heads_in(const LogJson& document) {
  std::vector<RankLog> logs;
  for (const LogJson& head : document.at("qccl").at("ranks")) logs.push_back(fields_in<RankLog>(head));
  return logs;
}

void add_record(RankLog& log, const LogJson& event) {
  const std::string category = event.value("cat", "");
  if (category == "qccl") log.records.push_back(fields_in<OperationRecord>(event.at("args")));
  if (category == "qccl round") log.rounds.push_back(fields_in<RoundRecord>(event.at("args")));
  if (category == "qccl gauge") log.gauges.push_back(fields_in<GaugeRecord>(event.at("args")));
}

}  // namespace qccl::tools
