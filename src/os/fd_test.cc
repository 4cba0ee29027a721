#include "os/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "os/net/socket.h"

namespace qccl::os {
namespace {

// The exit status of `body`, run in a forked child.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(Fd, closes_once_and_moves) {
  auto [first, second] = socket_pair().take_or_throw();
  const int number = first.get();
  {
    Fd moved = std::move(first);
    EXPECT_FALSE(first.valid());
    EXPECT_EQ(moved.get(), number);
  }
  EXPECT_FALSE(is_open(number));
  const int other = second.get();
  second = Fd();
  EXPECT_FALSE(is_open(other));
}

TEST(ForkList, a_child_keeps_no_listed_descriptor_and_can_make_its_own) {
  const auto [first, second] = socket_pair().take_or_throw();
  const ForkMark of_parent;
  const int status = in_child([&] {
    const ForkMark own;
    return (is_open(first.get()) ? 1 : 0) + (is_open(second.get()) ? 2 : 0) + (of_parent.inherited() ? 0 : 4) +
           (own.inherited() ? 8 : 0);
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(of_parent.inherited());
  EXPECT_TRUE(is_open(first.get()));
}

TEST(ForkList, a_descriptor_that_takes_the_number_of_a_closed_one_stays_open_in_the_child) {
  auto [first, second] = socket_pair().take_or_throw();
  const int number = second.get();
  second.reset();
  ASSERT_EQ(::dup2(STDERR_FILENO, number), number);
  EXPECT_EQ(in_child([&] { return is_open(number) && !is_open(first.get()) ? 0 : 1; }), 0);
  ::close(number);
}

TEST(ForkList, an_inherited_fd_leaves_alone_what_the_child_opened_under_its_number) {
  auto [first, second] = socket_pair().take_or_throw();
  const int number = first.get();
  const int status = in_child([&] {
    if (::dup2(STDERR_FILENO, number) != number) return 1;
    Fd own(number);
    first.reset();
    if (!is_open(number)) return 2;
    own.reset();
    return is_open(number) ? 3 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(ForkList, without_listed_descriptors_no_child_counts_as_forked) {
  const ForkMark mark;
  for (const int beyond_the_table : {1 << 20, -1}) Fd(beyond_the_table).reset();
  EXPECT_EQ(in_child([&] { return mark.inherited() ? 1 : 0; }), 0);
}

}  // namespace
}  // namespace qccl::os
