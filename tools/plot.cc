#include "tools/command_line.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace qccl::tools {

extern const char* const kPlotScript;  // plot.py; CMakeLists.txt writes its definition

namespace {

constexpr const char* kNeeds = "drawing needs a Python with matplotlib (`make build` makes one in .venv)";

std::string shell_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

}  // namespace

std::string own_python() {
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const auto& candidate : {folder.parent_path() / ".venv" / "bin" / "python", folder / "python"}) {
    if (!folder.empty() && std::filesystem::exists(candidate, error)) return shell_quoted(candidate.string());
  }
  return "python3";
}

std::optional<std::string> picture_name_problem(const std::string& path) {
  const std::filesystem::path picture(path);
  std::string ending = picture.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  const std::array endings = {".png", ".svg", ".pdf"};
  const auto folder = picture.has_parent_path() ? picture.parent_path() : std::filesystem::path(".");
  std::error_code error;
  if (std::filesystem::is_directory(picture, error)) {
    return fmt::format("{} is a directory: name a file, such as {}", path, (picture / "picture.png").string());
  }
  if (std::find(endings.begin(), endings.end(), ending) == endings.end()) {
    return fmt::format("{} does not end in {}, which tells the kind of picture", path, kPictureEndings);
  }
  if (std::filesystem::is_directory(folder, error)) return std::nullopt;
  return fmt::format("{}: there is no directory {}: make it, or name another file", path, folder.string());
}

CLI::Validator picture_value() {
  return CLI::Validator([](const std::string& path) { return picture_name_problem(path).value_or(""); }, "");
}

std::optional<std::string> plot_problem() {
  const std::string command = fmt::format("{} -c 'import matplotlib' >/dev/null 2>&1", own_python());
  if (std::system(command.c_str()) == 0) return std::nullopt;
  return fmt::format("{}; {} is none", kNeeds, own_python());
}

std::optional<std::string> draw_plot(const char* kind, const std::string& report, const std::string& path) {
  const std::string command =
      fmt::format("{} -c {} {} {}", own_python(), shell_quoted(kPlotScript), kind, shell_quoted(path));
  // A Python that ends before it has read the report must not end this program.
  const auto original = std::signal(SIGPIPE, SIG_IGN);
  std::FILE* pipe = ::popen(command.c_str(), "w");
  bool is_drawn = false;
  if (pipe != nullptr) {
    std::fwrite(report.data(), 1, report.size(), pipe);
    is_drawn = ::pclose(pipe) == 0;
  }
  std::signal(SIGPIPE, original);
  if (is_drawn) return std::nullopt;
  return "can't draw " + path;
}

}  // namespace qccl::tools
