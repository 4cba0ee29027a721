// A rank's process forks: the child must not use the communicator that it inherited, but may make its own world.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>

#include "support/transports.h"

namespace qccl::testing {
namespace {

// Runs `body`, which prints what is wrong, in a forked child and returns the exit status.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

void expect_sum_of_ones(Communicator& comm) {
  std::vector<float> values(100'000, 1.0F);
  comm.all_reduce(values);
  if (values.back() != static_cast<float>(comm.size())) throw std::runtime_error("a wrong sum");
}

int failed(const std::string& what) {
  std::cerr << what << "\n";
  return 1;
}

// In the child: 0 if the inherited communicator is refused with a reason.
int expect_refused(Communicator& inherited) {
  try {
    expect_sum_of_ones(inherited);
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool is_clear = error.kind() == ErrorKind::misuse && what.find("forked child") != std::string::npos;
    return is_clear ? 0 : failed(what);
  }
  return failed("the child's call went through");
}

int expect_own_world(const ThreadJobOptions& options) {
  for (const std::string& failure : run_threads(2, options, expect_sum_of_ones)) {
    if (!failure.empty()) return failed("in a world of the child's own: " + failure);
  }
  return 0;
}

TEST_P(Transports, a_forked_child_makes_a_world_of_its_own) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer starts no threads in a child of a process that has several";
#endif
  expect_success(2, [this](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) {
      ASSERT_EQ(in_child([&] {
                  const int refused = expect_refused(comm);
                  const int own = expect_own_world(options());
                  { const Communicator dropped = std::move(comm); }
                  return refused + own + expect_own_world(options());
                }),
                0);
    }
    expect_sum_of_ones(comm);
  });
}

}  // namespace
}  // namespace qccl::testing
