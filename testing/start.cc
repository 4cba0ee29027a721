#include "start.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <vector>

#include "rank_process.h"

namespace qccl::testing {
namespace {

constexpr const char* kRankVariable = "QCCL_TESTING_RANK";  // "rank call channel", for a spawned process

std::pair<Fd, Fd> make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system_error("pipe");
  return {Fd(ends[0]), Fd(ends[1])};
}

pid_t fork_quietly() {
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t process = ::fork();
  if (process < 0) throw_system_error("fork");
  return process;
}

// Runs the guard. It keeps none of the test's descriptors but its end of the pipe.
[[noreturn]] void stand_guard(Fd read, Fd write) {
  write.reset();
  ::setpgid(0, 0);
  ::prctl(PR_SET_NAME, "qccl-guard");
  ::dup2(read.get(), 0);
  ::syscall(SYS_close_range, 1U, ~0U, 0U);
  char byte = 0;
  while (::read(0, &byte, 1) < 0 && errno == EINTR) {
  }
  ::kill(0, SIGKILL);
  ::_exit(0);
}

// GoogleTest's variables that would make a spawned rank run no test or overwrite its parent's report.
constexpr const char* kHiddenVariables[] = {"GTEST_TOTAL_SHARDS",     "GTEST_SHARD_INDEX", "GTEST_SHARD_STATUS_FILE",
                                            "TEST_TOTAL_SHARDS",      "TEST_SHARD_INDEX",  "XML_OUTPUT_FILE",
                                            "TEST_SHARD_STATUS_FILE", "GTEST_OUTPUT"};

void set_variables(const JobOptions& options, int rank) {
  const std::string own = std::to_string(rank);
  const std::string world = std::to_string(options.world);
  ::setenv("RANK", own.c_str(), 1);
  ::setenv("LOCAL_RANK", own.c_str(), 1);
  ::setenv("WORLD_SIZE", world.c_str(), 1);
  ::setenv("LOCAL_WORLD_SIZE", world.c_str(), 1);
  for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
}

// The program's own arguments without GoogleTest's, plus the flags that select this one test.
std::vector<std::string> arguments_for_this_test() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string word; std::getline(file, word, '\0');) {
    if (!word.starts_with("--gtest_")) arguments.push_back(word);
  }
  const auto& test = *::testing::UnitTest::GetInstance()->current_test_info();
  arguments.push_back(std::string("--gtest_filter=") + test.test_suite_name() + "." + test.name());
  for (const char* flag : {"--gtest_also_run_disabled_tests", "--gtest_repeat=1", "--gtest_brief=1"}) {
    arguments.emplace_back(flag);
  }
  return arguments;
}

[[noreturn]] void become_this_test(const StartPlan& plan, int channel) {
  ::fcntl(channel, F_SETFD, 0);
  const std::string own = std::to_string(plan.rank) + " " + std::to_string(plan.call) + " " + std::to_string(channel);
  ::setenv(kRankVariable, own.c_str(), 1);
  for (const char* name : kHiddenVariables) ::unsetenv(name);
  std::vector<std::string> arguments = arguments_for_this_test();
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  // exec by path gives the processes the program's name. If the file is gone, exec of /proc/self/exe still works.
  std::error_code gone;
  ::execv(std::filesystem::read_symlink("/proc/self/exe", gone).c_str(), words.data());
  ::execv("/proc/self/exe", words.data());
  std::perror("qccl::testing: exec of the test program");
  ::_exit(127);
}

}  // namespace

Guard::Guard() {
  auto [read, write] = make_pipe();
  process_ = fork_quietly();
  if (process_ == 0) stand_guard(std::move(read), std::move(write));
  ::setpgid(process_, process_);  // the guard does the same, because either may run first
  alive_ = std::move(write);
}

Guard::~Guard() {
  kill_group();
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::kill_group() const { ::kill(-process_, SIGKILL); }

StartedRank start_rank(const StartPlan& plan, const std::function<void(Rank&)>& body,
                       const std::function<void()>& close_others) {
  auto [test_end, rank_end] = make_channel();
  auto [output, output_write] = make_pipe();
  const pid_t test = ::getpid();
  const pid_t process = fork_quietly();
  if (process == 0) {
    ::setpgid(0, plan.guard.group());
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // for a rank that leaves the group
    if (::getppid() != test) ::_exit(1);
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    ::dup2(output_write.get(), STDOUT_FILENO);
    ::dup2(output_write.get(), STDERR_FILENO);
    set_variables(plan.options, plan.rank);
    if (plan.options.start == Start::spawn) become_this_test(plan, rank_end.get());
    test_end.reset();
    output.reset();
    output_write.reset();
    plan.guard.leave();
    close_others();
    Rank::Process(plan.rank, plan.options, std::move(rank_end)).run(body);
  }
  ::setpgid(process, plan.guard.group());
  StartedRank started{process, Fd(static_cast<int>(::syscall(SYS_pidfd_open, process, 0U))), std::move(test_end),
                      std::move(output)};
  if (started.ended.get() < 0) throw_system_error("pidfd_open");
  ::fcntl(started.output.get(), F_SETFL, O_NONBLOCK);
  return started;
}

std::optional<SpawnedRank> spawned_rank() {
  const char* own = std::getenv(kRankVariable);
  if (own == nullptr) return std::nullopt;
  std::istringstream words(own);
  SpawnedRank rank{};
  words >> rank.rank >> rank.call >> rank.channel;
  return rank;
}

}  // namespace qccl::testing
