#include "tools/command_line.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>

#include "plan/plan.h"

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

// No range check of CLI11's rejects nan.
std::string check_finite(const std::string& text) {
  double value = 0;
  const bool is_bad = CLI::detail::lexical_cast(text, value) && !std::isfinite(value);
  return is_bad ? fmt::format("{} is no number that can be used here", text) : "";
}

}  // namespace

CommandLine::CommandLine(const std::string& description, const std::string& name, const std::string& usage,
                         const std::string& footer)
    : App(description, name) {
  formatter(std::make_shared<UsageFormatter>(name + (usage.empty() ? "" : " ") + usage));
  this->footer(footer);
}

std::optional<int> CommandLine::read(std::vector<std::string> arguments, int usage_error) {
  if (!arguments.empty() && arguments.front() == kCompleteFlag) {
    print_completions(arguments.back());
    return 0;
  }
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them in reverse
  try {
    parse(std::move(arguments));
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    std::cout << help();
    return 0;
  } catch (const CLI::ParseError& error) {
    std::cerr << get_name() << ": " << error.what() << "\n'" << get_name() << " --help' lists the flags.\n";
    return dynamic_cast<const ValueError*>(&error) != nullptr ? error.get_exit_code() : usage_error;
  }
}

void CommandLine::print_completions(const std::string& last_word) const {
  const CLI::Option* last = last_word.starts_with('-') ? get_option_no_throw(last_word) : nullptr;
  const std::string type = last != nullptr ? last->get_type_name() : "";  // "TEXT:{auto,shm,tcp}"
  const std::size_t begin = type.find('{');
  if (begin != std::string::npos) {
    std::string values = type.substr(begin + 1, type.find('}') - begin - 1);
    std::replace(values.begin(), values.end(), ',', '\n');
    std::cout << values << "\n";
    return;
  }
  for (const CLI::Option* option : get_options()) {
    for (const std::string& name : option->get_lnames()) std::cout << "--" << name << "\n";
    for (const std::string& name : option->get_snames()) std::cout << "-" << name << "\n";
  }
}

// ---- Values

Names<Collective> collective_names() {
  Names<Collective> names;
  for (const Collective collective : kEveryCollective) names.emplace_back(to_string(collective), collective);
  return names;
}

Names<Algorithm> algorithm_names() {
  Names<Algorithm> names;
  for (const Algorithm algorithm : every_algorithm()) names.emplace_back(to_string(algorithm), algorithm);
  return names;
}

std::optional<std::uint64_t> parse_size(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const std::size_t power = std::string("KMG").find(static_cast<char>(std::toupper(unit.empty() ? 0 : unit[0])));
  if (error != std::errc() || number < 0 || number > 1e18 || unit.size() > 1) return std::nullopt;
  if (unit.size() == 1 && power == std::string::npos) return std::nullopt;
  return static_cast<std::uint64_t>(unit.empty() ? number : std::ldexp(number, 10 * (static_cast<int>(power) + 1)));
}

CLI::Validator size_value() {
  const auto convert = [](std::string& text) -> std::string {
    const auto size = parse_size(text);
    if (!size) return text + " is not a size such as 4096, 64M or 1.5G";
    text = std::to_string(*size);
    return {};
  };
  return CLI::Validator(convert, "SIZE");
}

CLI::Validator rate_value() {
  const std::map<std::string, double> units = {{"kbit", 125}, {"mbit", 125e3}, {"gbit", 125e6}};
  return CLI::AsNumberWithUnit(units,
                               static_cast<CLI::AsNumberWithUnit::Options>(CLI::AsNumberWithUnit::CASE_INSENSITIVE |
                                                                           CLI::AsNumberWithUnit::UNIT_REQUIRED),
                               "RATE");
}

CLI::Validator time_value() {
  const std::map<std::string, double> units = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  return CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::UNIT_REQUIRED, "TIME");
}

void without_end_of_job_line() { ::setenv("QCCL_LOG", "error", 0); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::string size_text(std::uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, units[unit]);
}

CLI::Option* add_seconds(CLI::App& app, const std::string& flags, double& seconds, const CLI::Validator& range,
                         const std::string& description) {
  return app.add_option(flags, seconds, description)->check(range)->check(CLI::Validator(check_finite, ""));
}

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

CLI::Validator without_sign() {
  const auto check = [](const std::string& text) {
    return text.starts_with('-') ? fmt::format("{} is below 0", text) : "";
  };
  return CLI::Validator(check, "");
}

// ---- Settings of a job

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

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::optional<std::string> write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  if (file) return std::nullopt;
  return fmt::format("can't write '{}': {}", path, std::strerror(errno));
}

}  // namespace qccl::tools
