#include "tools/command_line.h"

#include <fmt/format.h>
#include <qccl/qccl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <memory>

#include "tools/flag_values.h"

namespace qccl::tools {
namespace {

class UsageFormatter : public CLI::Formatter {
 public:
  explicit UsageFormatter(std::string usage) : usage_(std::move(usage)) { column_width(28); }
  std::string make_usage(const CLI::App*, std::string) const override { return "Usage: " + usage_ + "\n"; }
  std::string make_footer(const CLI::App* app) const override { return "\n" + app->get_footer(); }

 private:
  std::string usage_;
};

// Empty if the text is a compression, else the error.
std::string check_compression(const std::string& text) {
  try {
    Compression::parse(text);
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

void set_usage(CLI::App& app, std::string usage) { app.formatter(std::make_shared<UsageFormatter>(std::move(usage))); }

std::optional<int> parse(CLI::App& app, std::vector<std::string> arguments, int usage_error) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them in reverse
  try {
    app.parse(std::move(arguments));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    std::cerr << app.get_name() << ": " << error.what() << "\n"
              << "'" << app.get_name() << " --help' lists the flags.\n";
    return dynamic_cast<const ValueError*>(&error) != nullptr ? error.get_exit_code() : usage_error;
  }
}

Variables JobVariables::variables() const {
  Variables set;
  if (!transport.empty()) set.emplace_back("QCCL_TRANSPORT", transport);
  if (!compression.empty()) set.emplace_back("QCCL_COMPRESSION", compression);
  if (!link_rate.empty()) set.emplace_back("QCCL_LINK_RATE", link_rate);
  return set;
}

void add_link_flags(CLI::App& app, JobVariables& job) {
  app.add_option("--transport", job.transport, "What carries the data: auto, shm or tcp")
      ->check(CLI::IsMember({"auto", "shm", "tcp"}));
  app.add_option("--link-rate", job.link_rate, "Pace each rank as a link of this rate would, for example 1gbit");
}

void add_job_flags(CLI::App& app, JobVariables& job) {
  add_link_flags(app, job);
  app.add_option("--compression", job.compression,
                 "What reductions send: none, cast:type=bf16, minmax:bits=4,bucket_size=1024")
      ->check(CLI::Validator(check_compression, "SPEC"));
}

CLI::Validator finite_number() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    const bool is_bad = CLI::detail::lexical_cast(text, value) && !std::isfinite(value);
    return is_bad ? fmt::format("{} is no number that can be used here", text) : "";
  };
  return CLI::Validator(check, "");
}

CLI::Validator without_sign() {
  const auto check = [](const std::string& text) {
    return text.starts_with('-') ? fmt::format("{} is below 0", text) : "";
  };
  return CLI::Validator(check, "");
}

std::optional<std::string> write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (file) return std::nullopt;
  return fmt::format("can't write '{}': {}", path, std::strerror(errno));
}

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace qccl::tools
