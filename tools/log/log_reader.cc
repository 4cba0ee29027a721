#include "tools/log/log_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace qccl::tools {
namespace {

using Json = nlohmann::json;

constexpr int kFormatVersion = 1;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw Error({.kind = ErrorKind::invalid_argument, .message = fmt::format("{}: {}", path, what)});
}

// The enumerator of that name. Tries 64 values, more than any of the enumerations has.
template <class Enum>
Enum value_named(const std::string& name) {
  for (int i = 0; i < 64; ++i) {
    if (to_string(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  throw std::invalid_argument(fmt::format("it has '{}', which is not known here", name));
}

template <class Field>
void read(const Json& value, Field& field) {
  if constexpr (std::is_same_v<Field, bool>) {
    field = value.get<int>() != 0;
  } else if constexpr (std::is_enum_v<Field>) {
    const auto name = value.get<std::string>();
    if (!name.empty()) field = value_named<Field>(name);  // a message has no algorithm
  } else {
    value.get_to(field);
  }
}
void read(const Json& value, Compression& field) { field = Compression::parse(value.get<std::string>()); }
void read(const Json& value, Hexadecimal<std::uint64_t> field) {
  field.number = std::stoull(value.get<std::string>(), nullptr, 16);
}

template <class Fields>
Fields fields_in(const Json& object) {
  Fields fields;
  visit_fields(fields, [&](const char* key, auto&& field) { read(object.at(key), field); });
  return fields;
}

std::vector<RankLog> ranks_in(const Json& document) {
  std::vector<RankLog> logs;
  for (const Json& head : document.at("qccl").at("ranks")) logs.push_back(fields_in<RankLog>(head));
  for (const Json& event : document.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("cat") != "qccl") continue;
    const int rank = event.at("pid").get<int>();
    const auto owner = std::find_if(logs.begin(), logs.end(), [&](const RankLog& log) { return log.rank == rank; });
    if (owner != logs.end()) owner->records.push_back(fields_in<OperationRecord>(event.at("args")));
  }
  for (RankLog& log : logs) {
    std::stable_sort(log.records.begin(), log.records.end(),
                     [](const auto& a, const auto& b) { return a.times.ended_ns < b.times.ended_ns; });
  }
  return logs;
}

Json parse_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(path, "there is no such file, or it can't be read");
  const Json document = Json::parse(file, nullptr, false);
  if (document.is_discarded()) fail(path, "no log of QCCL, or not all of it: it is not JSON");
  if (!document.is_object() || !document.contains("qccl")) {
    fail(path, "no log of QCCL: QCCL_LOG_FILE=PREFIX makes programs write one");
  }
  const Json version = document["qccl"].value("version", Json());
  if (version != kFormatVersion) {
    fail(path, fmt::format("of version {} of the format; this program reads {}", version.dump(), kFormatVersion));
  }
  return document;
}

bool is_empty(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none) && std::filesystem::file_size(path, none) == 0;
}

std::vector<RankLog> read_file(const std::string& path) {
  const Json document = parse_file(path);
  try {
    return ranks_in(document);
  } catch (const std::exception& error) {
    fail(path, fmt::format("a log of QCCL that can't be read: {}", error.what()));
  }
}

}  // namespace

std::vector<RankLog> read_logs(const std::vector<std::string>& paths) {
  std::map<int, std::pair<RankLog, std::string>> by_rank;
  for (const std::string& path : paths) {
    if (is_empty(path)) {
      fmt::print(stderr, "{}: empty, left out: its rank still runs, or was killed before it wrote its log\n", path);
      continue;
    }
    for (RankLog& log : read_file(path)) {
      const int rank = log.rank;
      if (!by_rank.empty() && log.world != by_rank.begin()->second.first.world) {
        const auto& [first, first_path] = by_rank.begin()->second;
        fmt::print(stderr, "{}: of a job of {} ranks, but {} of one of {}: is one of them left from another job?\n",
                   path, log.world, first_path, first.world);
      }
      const auto [known, is_new] = by_rank.try_emplace(rank, std::move(log), path);
      if (is_new) continue;
      fail(path, fmt::format("has rank {}, as {} has: give the files of one job", rank, known->second.second));
    }
  }
  if (by_rank.empty()) fail(paths.front(), "there is no log in what was given");
  std::vector<RankLog> logs;
  for (auto& [rank, log] : by_rank) logs.push_back(std::move(log.first));
  return logs;
}

}  // namespace qccl::tools
