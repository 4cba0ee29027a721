#include "os/fork_list.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <utility>

#include "os/fd.h"

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
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]);
  {
    Fd write_end(ends[1]);
    Fd moved = std::move(write_end);
    EXPECT_FALSE(write_end.valid());
    EXPECT_EQ(moved.get(), ends[1]);
  }
  EXPECT_FALSE(is_open(ends[1]));
  read_end = Fd();
  EXPECT_FALSE(is_open(ends[0]));
}

TEST(ForkList, a_child_keeps_no_listed_descriptor_and_its_reader_sees_end_of_file) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  std::optional<Fd> write_end(std::in_place, ends[1]);
  const ForkMark mark;
  const int status =
      in_child([&] { return (is_open(ends[0]) ? 1 : 0) + (is_open(ends[1]) ? 2 : 0) + (mark.inherited() ? 0 : 4); });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(mark.inherited());
  EXPECT_TRUE(is_open(ends[0]));
}

TEST(ForkList, a_descriptor_taken_off_the_list_stays_open_in_the_child) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd read_end(ends[0]), write_end(ends[1]);
  remove_from_fork_list(ends[1]);
  EXPECT_EQ(in_child([&] { return is_open(ends[1]) && !is_open(ends[0]) ? 0 : 1; }), 0);
}

TEST(ForkList, an_inherited_fd_leaves_alone_what_the_child_opened_under_its_number) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  const int status = in_child([&] {
    if (::dup2(STDERR_FILENO, ends[0]) != ends[0]) return 1;
    Fd own(ends[0]);
    read_end.reset();
    if (!is_open(ends[0])) return 2;
    own.reset();
    return is_open(ends[0]) ? 3 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST(ForkList, what_a_child_makes_itself_is_not_inherited) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd read_end(ends[0]), write_end(ends[1]);
  const ForkMark of_parent;
  const int status = in_child([&] {
    const ForkMark own;
    return (of_parent.inherited() ? 0 : 1) + (own.inherited() ? 2 : 0);
  });
  EXPECT_EQ(status, 0);
}

TEST(ForkList, a_process_without_listed_descriptors_forks_clean_children) {
  const ForkMark mark;
  EXPECT_EQ(in_child([&] { return mark.inherited() ? 1 : 0; }), 0);
}

TEST(ForkList, descriptors_beyond_the_table_are_ignored) {
  add_to_fork_list(1 << 20);
  add_to_fork_list(-1);
  remove_from_fork_list(1 << 20);
  remove_from_fork_list(-1);
  const ForkMark mark;
  EXPECT_EQ(in_child([&] { return mark.inherited() ? 1 : 0; }), 0);
}

}  // namespace
}  // namespace qccl::os
