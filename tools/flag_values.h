// Values on the command line that several commands take: names, sizes, rates and times.
#pragma once

#include <qccl/qccl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace qccl::tools {

// A wrong value that ends the program with its own exit code.
struct ValueError : CLI::ParseError {
  ValueError(const std::string& message, int code) : ParseError("ValueError", message, code) {}
};

// The names of an option's values, in the order shown to users.
template <class T>
using Names = std::vector<std::pair<std::string, T>>;

Names<Collective> collective_names();
Names<Algorithm> algorithm_names();

// "sum prod min"
template <class T>
std::string names_text(const Names<T>& names) {
  std::string text;
  for (const auto& [name, value] : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

// `others` are further words that the error lists.
template <class T>
T value_named(const Names<T>& names, const std::string& flag, const std::string& name, const std::string& others = "") {
  const auto found = std::ranges::find(names, name, &std::pair<std::string, T>::first);
  if (found != names.end()) return found->second;
  throw CLI::ValidationError(flag, "there is no '" + name + "', only " + names_text(names) + others);
}

// An option whose value has a name; `target` is a T or an optional T.
template <class T, class Target>
CLI::Option* add_named(CLI::App& app, const std::string& flags, Target& target, const Names<T>& names,
                       const std::string& description) {
  const auto take = [&target, flags, names](const std::string& name) { target = value_named(names, flags, name); };
  return app.add_option_function<std::string>(flags, take, description);
}

// Bytes of "64M", "1.5G" or "4096"; nothing for other texts.
std::optional<std::uint64_t> parse_size(const std::string& text);

// Change "64M" to bytes (a std::uint64_t), "10gbit" to bytes a second and "50us" to seconds (doubles).
CLI::Validator size_value();
CLI::Validator rate_value();
CLI::Validator time_value();

// 67108864 to "64 MiB"; 0.00123 to "1.23 ms".
std::string size_text(std::uint64_t bytes);
std::string time_text(double seconds);

}  // namespace qccl::tools
