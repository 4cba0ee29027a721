// What the commands of the `qccl` program have in common: their flags, the values on the command line, their files.
#pragma once

#include <qccl/qccl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/run/process/rank_process.h"

namespace qccl::tools {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

// Each gets the arguments after its name and returns the exit code that its --help describes.
int codec_list_main(const std::vector<std::string>& arguments);
int codec_show_main(const std::vector<std::string>& arguments);
int codec_bench_main(const std::vector<std::string>& arguments);
int dash_main(const std::vector<std::string>& arguments);
int doctor_main(const std::vector<std::string>& arguments);
int key_main(const std::vector<std::string>& arguments);
int log_main(const std::vector<std::string>& arguments);
int trace_main(const std::vector<std::string>& arguments);
int perf_main(const std::vector<std::string>& arguments);  // nccl-tests' exit codes; the collective comes first
int plan_check_main(const std::vector<std::string>& arguments);
int plan_outer_main(const std::vector<std::string>& arguments);
int plan_show_main(const std::vector<std::string>& arguments);
int plan_simulate_main(const std::vector<std::string>& arguments);
int ps_main(const std::vector<std::string>& arguments);
int top_main(const std::vector<std::string>& arguments);
int run_main(const std::vector<std::string>& arguments);
int version_main(const std::vector<std::string>& arguments);
int completion_main(const std::vector<std::string>& arguments);

// As the first argument of any command: it prints the words that may follow the others, one a line, and does nothing
// else. The scripts of `qccl completion` ask so.
inline constexpr const char* kCompleteFlag = "--complete";

struct Command {
  const char* name;
  int (*run)(const std::vector<std::string>& arguments);
};

// Runs the command that the first argument names, or prints `help`. `program` begins messages.
int dispatch(const char* program, const char* help, std::span<const Command> commands,
             const std::vector<std::string>& arguments);

// For commands that run jobs of their own and say themselves what these did: only their errors are logged, unless the
// user's QCCL_LOG asks for more.
void without_end_of_job_line();

// ---- Parsing

// A command's flags. `usage`: the words after its name in the first line of the help. `footer`: the end of the help.
class CommandLine : public CLI::App {
 public:
  CommandLine(const std::string& description, const std::string& name, const std::string& usage,
              const std::string& footer = "");

  // Exit code if the program should end here: 0 after --help, or `usage_error`, or a ValueError's, after printing what
  // is wrong.
  std::optional<int> read(std::vector<std::string> arguments, int usage_error = kExitUsage);

 private:
  // The flags, or after a flag that takes one of a few values those values.
  void print_completions(const std::string& last_word) const;
};

// A wrong value that ends the program with its own exit code.
struct ValueError : CLI::ParseError {
  ValueError(const std::string& message, int code) : ParseError("ValueError", message, code) {}
};

// ---- Values

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

double median(std::vector<double> values);

// 67108864 to "64 MiB".
std::string size_text(std::uint64_t bytes);

// A number of seconds in this range; refuses nan, which CLI11's ranges let pass.
CLI::Option* add_seconds(CLI::App& app, const std::string& flags, double& seconds, const CLI::Validator& range,
                         const std::string& description);
std::chrono::milliseconds to_milliseconds(double seconds);

// Rejects negative numbers, which CLI11 lets wrap in an unsigned variable.
CLI::Validator without_sign();

// ---- Settings of a job

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

// ---- This machine

// As /proc/cpuinfo has it.
std::string processor_name();

// ---- Files and pictures

// Replaces the file's content. Returns the reason if it could not be written.
std::optional<std::string> write_text(const std::string& path, const std::string& text);

// A Python script that is compiled into the program draws its reports with matplotlib.

// Endings that a picture's name may have, for help texts.
inline constexpr const char* kPictureEndings = ".png, .svg or .pdf";

// If no picture can have that name, the reason: a wrong ending, a missing folder, or the name of a folder. Call this
// and plot_problem() before work that takes long.
std::optional<std::string> picture_name_problem(const std::string& path);
// Refuses such names.
CLI::Validator picture_value();

// The Python of the checkout whose build folder holds this program, else the one beside this program, else the one in
// PATH; quoted for a shell.
std::string own_python();

// If nothing can be drawn, the reason. Takes about half a second.
std::optional<std::string> plot_problem();

// Draws the report, JSON of this kind: "codec", "perf" or "log". On failure Python prints the cause, and this returns a
// message that names the picture.
std::optional<std::string> draw_plot(const char* kind, const std::string& report, const std::string& path);

}  // namespace qccl::tools
