// What the commands' flags have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/process/rank_process.h"

namespace qccl::tools {

inline constexpr int kExitUsage = 2;

// An app whose help begins with `usage`, a whole line without "Usage: ".
void set_usage(CLI::App& app, std::string usage);

// Exit code if the command line ends here: 0 after --help, else `usage_error` with what is wrong.
std::optional<int> parse(CLI::App& app, std::vector<std::string> arguments, int usage_error);

// Settings that ranks read from their environment.
struct JobVariables {
  std::string transport;
  std::string compression;
  std::string link_rate;

  // Those that are set, as the library's variables.
  Variables variables() const;
};

// --transport and --link-rate.
void add_link_flags(CLI::App& app, JobVariables& job);
// These and --compression.
void add_job_flags(CLI::App& app, JobVariables& job);

// Refuse what CLI11's own checks let pass: nan, which lies outside of no range; and numbers below 0 for a variable
// without sign, in which they would wrap.
CLI::Validator finite_number();
CLI::Validator without_sign();

std::chrono::milliseconds to_milliseconds(double seconds);

}  // namespace qccl::tools
