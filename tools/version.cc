// `qccl version`: what a report of a bug should say about this program and its machine.
#include <fmt/format.h>
#include <qccl/diagnostics.h>

#include <cstdio>
#include <memory>

#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr const char* kVersionFooter = R"(
Example:
  qccl --version

Exit code: 0; 2 for wrong flags.
)";

#if defined(__clang__)
constexpr const char* kCompiler = "Clang " __clang_version__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

std::string instruction_set() {
  for (const Finding& finding : diagnose()) {
    if (finding.topic == "SIMD") return finding.text;
  }
  return "unknown";
}

// The release of torch in the environment of own_python(), without importing it.
std::string torch() {
  const std::string command =
      own_python() + " -c 'import importlib.metadata as m; print(m.version(\"torch\"), end=\"\")' 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  char text[64] = {};
  const bool is_read = pipe != nullptr && std::fgets(text, sizeof text, pipe.get()) != nullptr;
  return is_read ? fmt::format("{} ({})", text, own_python()) : fmt::format("none ({} has none)", own_python());
}

}  // namespace

int version_main(const std::vector<std::string>& arguments) {
  CommandLine app("Prints the version, and what a report of a bug should name.", "qccl version", "", kVersionFooter);
  if (const auto code = app.read(arguments)) return *code;
  fmt::print("qccl {}\n", version());
  fmt::print("compiler  {}\n", kCompiler);
  fmt::print("CPU       {}; SIMD {}\n", processor_name(), instruction_set());
  fmt::print("torch     {}\n", torch());
  return 0;
}

}  // namespace qccl::tools
