// `qccl doctor`: reports what the library finds here, what it would do, what is wrong and how to fix it.
#include <fmt/format.h>
#include <qccl/qccl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "plan/cost/cost.h"
#include "tools/command_line.h"
#include "tools/doctor/line_rate.h"
#include "tools/plan/profile_measure.h"

namespace qccl::tools {
namespace {

using Level = Finding::Level;

// A rank's report to rank 0 is truncated to this size.
constexpr std::size_t kReportBytes = 4096;

// How long the other ranks wait while rank 0 measures its machine: that takes some seconds, or minutes on a busy one.
constexpr Milliseconds kMeasuring = std::chrono::minutes(30);

constexpr const char* kDoctorFooter =
    R"(Prints what qccl::init() would find and use here, joins the job, computes a sum over all ranks, and prints
how each rank is reached and what all_reduce, broadcast and all_gather would do at some sizes. Under a launcher
rank 0 prints for all; the others' warnings and faults carry their rank.

Exit code: 0; 1 if something is broken; 2 for wrong flags. Warnings do not change it.

Between ranks of different hosts it also measures the line both ways, for some seconds a pair (one rank of each host,
the first eight hosts, pairs of different hosts at the same time): round trip, rate of one and of four TCP connections,
and what TCP's buffers allow. A warning says what to raise, or to set QCCL_CONNECTIONS. --no-rates leaves this out.

--measure FILE measures instead, for some seconds: memory, codecs, shared memory and loopback of rank 0's
machine and, if the job has another host, the wire to it. Run nothing else meanwhile. With QCCL_PROFILE=FILE the
choice of algorithms uses the file, a text of keys and values that you can edit.

Examples:
  qccl doctor                                    this machine and this process
  qccl doctor --measure machine.profile
  qccl run -n 4 -- qccl doctor                   four ranks of one host
  qccl run -n 2 -- qccl doctor --no-rates        without traffic on the lines between hosts
  torchrun --nnodes 2 ... --no-python qccl doctor      before a job, with the job's own launcher
  QCCL_COMPRESSION=minmax:bits=4 qccl run -n 2 -- qccl doctor
)";

std::string line(const std::string& topic, const std::string& text) { return fmt::format("{:<21}{}\n", topic, text); }

// The warnings and faults among the findings, with their remedies; `prefix` precedes each topic.
std::string complaints(const std::vector<Finding>& findings, const std::string& prefix) {
  std::string text;
  for (const Finding& finding : findings) {
    if (finding.level == Level::fact) continue;
    text += fmt::format("{} {}{}: {}\n    fix: {}\n", finding.level == Level::broken ? "BROKEN " : "WARNING", prefix,
                        finding.topic, finding.text, finding.remedy);
  }
  return text;
}

bool any_broken(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.level == Level::broken; });
}

void print_facts(const std::vector<Finding>& findings) {
  fmt::print("{}", line("version", version()));
  for (const Finding& finding : findings) {
    if (finding.level == Level::fact) fmt::print("{}", line(finding.topic, finding.text));
  }
}

// Gathers one text of every rank, in rank order, on all ranks.
std::vector<std::string> gather(Communicator& world, const std::string& own) {
  std::vector<char> mine(kReportBytes, '\0');
  std::copy_n(own.begin(), std::min(own.size(), kReportBytes - 1), mine.begin());
  std::vector<char> all(kReportBytes * static_cast<std::size_t>(world.size()));
  world.all_gather(mine.data(), all.data(), kReportBytes, DataType::uint8);
  std::vector<std::string> texts;
  for (std::size_t begin = 0; begin < all.size(); begin += kReportBytes) texts.emplace_back(all.data() + begin);
  return texts;
}

// Describes the compression of an all_reduce; "" if compression is off.
std::string compression_of(const Communicator& world, std::size_t count) {
  constexpr std::size_t kLarge = std::size_t{1} << 30;
  if (world.effective_compression(kLarge, DataType::float32).is_none()) return "";
  const Compression codec = world.effective_compression(count, DataType::float32);
  return codec.is_none() ? "; too small to compress" : fmt::format("; {}, as QCCL_COMPRESSION asks", codec.to_string());
}

// Prints which algorithms calls of some sizes would use, and why.
void print_choices(const Communicator& world) {
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast, Collective::all_gather}) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 14, std::size_t{1} << 18, std::size_t{1} << 26}) {
      const std::size_t count = std::max<std::size_t>(1, bytes / 4 / (has_pieces(collective) ? world.size() : 1));
      std::string text = world.explain_algorithm(collective, count, DataType::float32);
      if (collective == Collective::all_reduce) text += compression_of(world, count);
      fmt::print("{}", line(fmt::format("{} {}", to_string(collective), bytes), text));
    }
  }
}

// Sums over all ranks with a small call and with one large enough for frames, so that both paths of a job are tested.
bool adds_up(Communicator& world) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 16}) {
    std::vector<std::int32_t> values(count, world.rank());
    world.all_reduce(values);
    const std::int32_t expected = world.size() * (world.size() - 1) / 2;
    if (std::any_of(values.begin(), values.end(), [=](std::int32_t value) { return value != expected; })) return false;
  }
  return true;
}

int examine_job(const std::vector<Finding>& findings, double timeout, bool rates) {
  Communicator world = init({.timeout = to_milliseconds(timeout), .init_timeout = to_milliseconds(timeout)});
  const std::string prefix = world.size() == 1 ? "" : fmt::format("rank {}: ", world.rank());
  const bool right = adds_up(world);
  const LineReport lines = rates ? measure_lines(world) : LineReport();
  const auto reports = gather(world, complaints(findings, prefix) + lines.complaints);
  const auto measured = gather(world, lines.lines);
  const auto reached = gather(world, world.describe());
  if (world.rank() == 0) {
    print_facts(findings);
    print_choices(world);
    for (const std::string& text : reached) fmt::print("{}", line("reached", text));
    for (const std::string& text : measured) fmt::print("{}", text);
    for (const std::string& text : reports) fmt::print("{}", text);
    const bool complained = std::ranges::any_of(reports, [](const auto& text) { return !text.empty(); });
    if (right && !complained) fmt::print("Nothing is wrong.\n");
    std::fflush(stdout);
  }
  if (!right) fmt::print(stderr, "BROKEN  rank {}: a sum over all ranks is wrong: report this\n", world.rank());
  world.close();
  return right ? 0 : kExitFailed;
}

int measure(const std::string& path, double timeout) {
  Communicator world = init({.timeout = kMeasuring, .init_timeout = to_milliseconds(timeout)});
  plan::Profile profile = plan::default_profile();
  // The ranks that this process itself starts are on one host, and no link limits them.
  for (const char* variable : {"QCCL_HOSTS", "QCCL_LINK_RATE"}) ::unsetenv(variable);
  if (world.rank() == 0) profile = measure_machine();
  measure_wire(world, profile);
  const bool shows = world.rank() == 0;
  world.close();
  if (!shows) return 0;
  fmt::print("{}", plan::to_text(profile));
  const auto problem = write_text(path, "# Written by qccl doctor --measure.\n" + plan::to_text(profile));
  if (!problem) return 0;
  fmt::print(stderr, "qccl doctor: {}\n", *problem);
  return kExitFailed;
}

}  // namespace

int doctor_main(const std::vector<std::string>& arguments) {
  without_end_of_job_line();
  CommandLine app("Says what QCCL sees here, what it would do, what is wrong and how to fix it.", "qccl doctor",
                  "[OPTIONS]", kDoctorFooter);
  double timeout = 20;
  add_seconds(app, "--timeout", timeout, CLI::PositiveNumber, "Seconds to wait for the other ranks")
      ->capture_default_str();
  bool no_rates = false;
  app.add_flag("--no-rates", no_rates, "Don't measure the lines between hosts");
  std::string profile;
  app.add_option("--measure", profile, "Measure and write a profile to this file");
  if (const auto code = app.read(arguments)) return *code;

  const std::vector<Finding> findings = diagnose();
  if (any_broken(findings)) {  // joining would fail here, or make the other ranks fail
    print_facts(findings);
    fmt::print("{}", complaints(findings, ""));
    return kExitFailed;
  }
  try {
    return profile.empty() ? examine_job(findings, timeout, !no_rates) : measure(profile, timeout);
  } catch (const Error& error) {
    print_facts(findings);
    fmt::print("{}BROKEN  the job: {}\n", complaints(findings, ""), error.what());
    return kExitFailed;
  }
}

}  // namespace qccl::tools
