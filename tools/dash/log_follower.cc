#include "tools/dash/log_follower.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tools/log/read_log.h"

namespace qccl::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kShortPolls = 4;
constexpr std::size_t kLongestLine = 1 << 20;

// PREFIX<digits>.json?
bool is_rank_file(const std::string& name, const std::string& prefix) {
  static constexpr std::string_view kEnding = ".json";
  if (!name.starts_with(prefix) || !name.ends_with(kEnding)) return false;
  if (name.size() <= prefix.size() + kEnding.size()) return false;
  const std::string_view digits = std::string_view(name).substr(prefix.size(), name.size() - prefix.size() - 5);
  return std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
}

// The text of [offset, offset + text.size()) of the file equals `text`.
bool has_text(std::ifstream& file, std::uint64_t offset, const std::string& text) {
  std::string found(text.size(), '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(found.data(), static_cast<std::streamsize>(found.size()));
  return static_cast<std::size_t>(file.gcount()) == text.size() && found == text;
}

}  // namespace

LogFollower::LogFollower(std::vector<std::string> names, dashboard::JobView& view)
    : names_(std::move(names)), view_(view) {
  look_for_files();
}

void LogFollower::look_for_files() {
  for (const std::string& name : names_) {
    std::error_code none;
    if (fs::is_regular_file(name, none)) {
      files_.try_emplace(name, File{.path = name});
      continue;
    }
    const fs::path prefix(name);
    const fs::path folder = prefix.has_parent_path() ? prefix.parent_path() : fs::path(".");
    for (const auto& entry : fs::directory_iterator(folder, none)) {
      if (!is_rank_file(entry.path().filename().string(), prefix.filename().string())) continue;
      const std::string path = entry.path().string();
      files_.try_emplace(path, File{.path = path});
    }
  }
}

bool LogFollower::poll() {
  look_for_files();
  bool has_news = false;
  for (auto& [path, file] : files_) {
    if (!file.is_refused && has_grown(file)) has_news |= read(file);
  }
  if (std::exchange(must_restart_, false)) {
    view_.clear();
    files_.clear();
    return poll();
  }
  return has_news;
}

bool LogFollower::has_grown(File& file) {
  std::error_code problem;
  const std::uint64_t size = fs::file_size(file.path, problem);
  const auto written = fs::last_write_time(file.path, problem).time_since_epoch().count();
  if (problem) return false;
  // A file that is being written again is short for a moment.
  file.short_polls = size < file.offset ? file.short_polls + 1 : 0;
  must_restart_ |= file.short_polls > kShortPolls;
  if (size < file.offset || (size == file.size && written == file.written)) return false;
  file.size = size;
  file.written = written;
  if (file.offset == 0) return size > 0;
  std::ifstream text(file.path, std::ios::binary);
  const bool is_same = has_text(text, 0, file.head) && has_text(text, file.offset - file.last.size(), file.last);
  must_restart_ |= !is_same;
  return is_same;
}

bool LogFollower::read(File& file) {
  std::ifstream text(file.path, std::ios::binary);
  text.seekg(static_cast<std::streamoff>(file.offset));
  std::uint64_t at = file.offset;
  bool has_news = false;
  std::string line;
  while (!file.is_refused && std::getline(text, line) && !text.eof()) {  // eof: a line that is not whole yet
    const std::uint64_t begin = at;
    at += line.size() + 1;
    if (line.size() > kLongestLine) {
      refuse(file, fmt::format("a line of more than {} bytes: no log of QCCL", kLongestLine));
    } else if (file.offset == 0) {
      if (!read_head(file, line)) return has_news;
      file.head = line;
      file.last = line;
      file.offset = begin + line.size();
    } else if (const std::size_t brace = line.find('{'); brace != std::string::npos) {
      const std::size_t end = line.ends_with(',') ? line.size() - 1 : line.size();
      const std::string record = line.substr(brace, end - brace);
      read_record(file, record);
      file.last = record;
      file.offset = begin + end;
      has_news = true;
    }
  }
  return has_news;
}

bool LogFollower::read_head(File& file, const std::string& line) {
  try {
    const LogJson document = LogJson::parse(line + "]}", nullptr, false);
    if (document.is_discarded()) refuse_log(file.path, "no log of QCCL, or written by another program");
    check_log(file.path, document);
    for (RankLog& head : heads_in(document)) {
      view_.add_rank(head);
      const int rank = head.rank;
      file.ranks.insert_or_assign(rank, std::move(head));
    }
    return true;
  } catch (const std::exception& error) {
    refuse(file, error.what());
    return false;
  }
}

void LogFollower::read_record(File& file, const std::string& line) {
  try {
    const LogJson event = LogJson::parse(line);
    const auto owner = file.ranks.find(event.at("pid").get<int>());
    if (owner == file.ranks.end()) return;
    RankLog& log = owner->second;
    add_record(log, event);
    visit_lists(
        [&](auto& list) {
          for (const auto& record : list) view_.add(log.rank, record);
          list.clear();
        },
        log);
  } catch (const std::exception& error) {
    refuse(file, fmt::format("{}: a record that can't be read: {}", file.path, error.what()));
  }
}

void LogFollower::refuse(File& file, const std::string& why) {
  file.is_refused = true;
  fmt::print(stderr, "qccl dash: {}\n", why);
  view_.add_message("warning", why, -1);
}

}  // namespace qccl::tools
