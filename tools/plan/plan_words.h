// The words that `qccl plan`'s commands share: names, sizes, rates and times on the command line.
#pragma once

#include <qccl/qccl.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace qccl::tools {

std::map<std::string, Collective> collective_names();
std::map<std::string, Algorithm> algorithm_names();
std::vector<Collective> all_collectives();

// An option whose value has a name; `target` is a T or an optional T.
template <class T, class Target>
CLI::Option* add_named(CLI::App& app, const std::string& flags, Target& target, const std::map<std::string, T>& names,
                       const std::string& description) {
  std::vector<std::string> words;
  for (const auto& [name, value] : names) words.push_back(name);
  const auto take = [&target, names](const std::string& word) { target = names.at(word); };
  return app.add_option_function<std::string>(flags, take, description)->check(CLI::IsMember(words).description(""));
}

// "64M" to bytes (a std::uint64_t), "10gbit" to bytes a second and "50us" to seconds (doubles).
CLI::Validator size_word();
CLI::Validator rate_word();
CLI::Validator time_word();

// 67108864 to "64 MiB"; 0.00123 to "1.23 ms".
std::string size_text(std::uint64_t bytes);
std::string time_text(double seconds);

}  // namespace qccl::tools
