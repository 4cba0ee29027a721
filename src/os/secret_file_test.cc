#include "os/secret_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/expect_failure.h"
#include "os/test_user.h"

namespace qccl::os {
namespace {

class SecretFile : public testing::Test {
 protected:
  std::filesystem::path folder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "qccl-secret-XXXXXX").string();
    return std::string(::mkdtemp(name.data()));
  }();
  std::string path = (folder / "key").string();
  ~SecretFile() override { std::filesystem::remove_all(folder); }
};

TEST_F(SecretFile, is_for_its_owner_only_and_never_overwritten) {
  ASSERT_TRUE(write_secret_file(path, "content\n").ok());
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_FALSE(is_readable_by_others(path));
  EXPECT_EQ(read_secret_file(path, 100).take_or_throw(), "content\n");
  expect_failure(write_secret_file(path, "other"), ErrorKind::misuse, "can't make " + path);
  EXPECT_EQ(read_secret_file(path, 100).take_or_throw(), "content\n");
}

TEST_F(SecretFile, that_others_can_read_is_told) {
  std::ofstream(path) << "content";
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_TRUE(is_readable_by_others(path));
  EXPECT_FALSE(is_readable_by_others(path + "-not-there"));
}

TEST_F(SecretFile, too_long_or_missing_is_an_error_without_the_content) {
  std::ofstream(path) << "sixteen bytes...";
  EXPECT_TRUE(read_secret_file(path, 16).ok());
  const auto refused = read_secret_file(path, 15);
  expect_failure(refused, ErrorKind::invalid_argument, "has more than 15 bytes");
  EXPECT_EQ(refused.error().message.find("sixteen"), std::string::npos);
  expect_failure(read_secret_file(path + "-not-there", 16), ErrorKind::invalid_argument, "No such file");
  expect_failure(read_secret_file(folder.string(), 16), ErrorKind::invalid_argument, "can't read");
}

TEST(PassedSecret, is_read_again_and_again_from_the_inherited_descriptor) {
  const PassedSecret passed = pass_secret("content").take_or_throw();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(read_inherited_secret(passed.location, 100).take_or_throw(), "content");
}

TEST(PassedSecret, cannot_be_changed_by_those_that_inherit_it) {
  const PassedSecret passed = pass_secret("content").take_or_throw();
  EXPECT_EQ(::pwrite(passed.fd.get(), "x", 1, 0), -1);
  EXPECT_EQ(::ftruncate(passed.fd.get(), 0), -1);
  EXPECT_EQ(read_inherited_secret(passed.location, 100).take_or_throw(), "content");
}

TEST(PassedSecret, is_found_through_its_maker_if_the_descriptor_was_closed_or_is_another_file) {
  const PassedSecret passed = pass_secret("content").take_or_throw();
  for (const bool reuses : {false, true}) {
    const pid_t child = ::fork();  // closes the descriptor, which is on the list of os/fd.h
    if (child == 0) {
      if (reuses) ::dup2(::open("/dev/null", O_RDONLY), passed.fd.get());
      auto read = read_inherited_secret(passed.location, 100);
      ::_exit(read.ok() && *read == "content" ? 0 : 1);
    }
    int status = 1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << reuses;
  }
}

TEST(PassedSecret, is_no_other_users_and_no_other_file) {
  const PassedSecret passed = pass_secret("content").take_or_throw();
  const Fd null(::open("/dev/null", O_RDONLY));
  const std::string elsewhere = std::to_string(null.get()) + "@" + std::to_string(::getpid());
  expect_failure(read_inherited_secret(elsewhere, 100), ErrorKind::misuse, "neither this process nor process");
  for (const char* wrong : {"", "7", "7@", "@7", "-1@7", "7@0", "a@b"}) {
    expect_failure(read_inherited_secret(wrong, 100), ErrorKind::invalid_argument, "is no DESCRIPTOR@PROCESS");
  }
  if (!can_act_as_another()) GTEST_SKIP() << kNeedsRoot;
  OtherUser other([&] { return !read_inherited_secret(passed.location, 100).ok(); });
  EXPECT_TRUE(other.succeeded());
}

}  // namespace
}  // namespace qccl::os
