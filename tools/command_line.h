// The parts that the commands' flags have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/process/rank_process.h"

namespace qccl::tools {

// An app whose help begins with `usage`, a whole line without "Usage: ".
void set_usage(CLI::App& app, std::string usage);

// Exit code if the program should end here: 0 after --help, or `usage_error`, or a ValueError's, after printing what is
// wrong.
std::optional<int> parse(CLI::App& app, std::vector<std::string> arguments, int usage_error);

// Settings that ranks read from their environment.
struct JobVariables {
  std::string transport;
  std::string compression;
  std::string link_rate;

  // The settings that were given, as the library's variables.
  Variables variables() const;
};

// --transport and --link-rate.
void add_link_flags(CLI::App& app, JobVariables& job);
// --transport, --link-rate and --compression.
void add_job_flags(CLI::App& app, JobVariables& job);

// Reject values that CLI11's own checks accept: nan, which no range check rejects, and negative numbers, which wrap in
// an unsigned variable.
CLI::Validator finite_number();
CLI::Validator without_sign();

std::chrono::milliseconds to_milliseconds(double seconds);

// Replaces the file's content. Returns the reason if it could not be written.
std::optional<std::string> write_text(const std::string& path, const std::string& text);

}  // namespace qccl::tools
