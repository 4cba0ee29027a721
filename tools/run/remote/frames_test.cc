#include "tools/run/remote/frames.h"

#include <gtest/gtest.h>

#include <random>

#include "tools/run/job_part.h"

namespace qccl::tools {
namespace {

TEST(Frames, come_out_as_they_went_in_however_the_bytes_are_cut) {
  std::mt19937 random(1);
  std::string bytes = "Welcome!\nqccl run" + std::string(kGreeting) + "1.2\n";
  for (int i = 0; i < 200; ++i) {
    bytes += encode_frame(FrameKind::output, static_cast<std::uint32_t>(i) << 20, std::string(random() % 300, 'x'));
  }
  FrameReader reader;
  std::optional<std::string> greeting;
  std::uint32_t expected = 0;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t size = std::min<std::size_t>(1 + random() % 50, bytes.size() - begin);
    reader.append(std::string_view(bytes).substr(begin, size));
    begin += size;
    if (!greeting) greeting = reader.greeting();
    if (!greeting) continue;
    while (const auto frame = reader.next()) {
      EXPECT_EQ(frame->kind, FrameKind::output);
      EXPECT_EQ(frame->number, expected++ << 20);
      EXPECT_EQ(frame->text, std::string(frame->text.size(), 'x'));
    }
  }
  EXPECT_EQ(greeting, "1.2");
  EXPECT_EQ(expected, 200u);
  EXPECT_FALSE(reader.is_broken());
}

TEST(Frames, what_is_none_is_seen) {
  FrameReader of_no_kind;
  of_no_kind.append(std::string(9, '\0'));
  EXPECT_FALSE(of_no_kind.next());
  EXPECT_TRUE(of_no_kind.is_broken());

  FrameReader too_long;
  too_long.append(encode_frame(FrameKind::job).substr(0, 5) + "\xff\xff\xff\xff");
  EXPECT_FALSE(too_long.next());
  EXPECT_TRUE(too_long.is_broken());
}

TEST(JobPart, survives_the_way_whatever_bytes_its_words_hold) {
  JobPart part;
  part.world = 8;
  part.first_rank = 4;
  part.ranks = 2;
  part.master_address = "fd00::1";
  part.master_port = 40000;
  part.folder = "/tmp/\xff\xfe";
  part.variables = {{"A", "1 \n'\""}, {"B", "\x80"}};
  part.command = {"sh", "-c", "", "\xc3"};
  part.bind_to_cores = true;
  part.grace = std::chrono::milliseconds(17);
  part.host_timeout = std::chrono::milliseconds(18);
  const auto back = decode_job_part(encode_job_part(part));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->world, part.world);
  EXPECT_EQ(back->first_rank, part.first_rank);
  EXPECT_EQ(back->ranks, part.ranks);
  EXPECT_EQ(back->master_address, part.master_address);
  EXPECT_EQ(back->master_port, part.master_port);
  EXPECT_EQ(back->folder, part.folder);
  EXPECT_EQ(back->variables, part.variables);
  EXPECT_EQ(back->command, part.command);
  EXPECT_EQ(back->bind_to_cores, part.bind_to_cores);
  EXPECT_EQ(back->grace, part.grace);
  EXPECT_EQ(back->host_timeout, part.host_timeout);
  const std::string bytes = encode_job_part(part);
  EXPECT_FALSE(decode_job_part(bytes.substr(0, bytes.size() / 2)));
  EXPECT_FALSE(decode_job_part("{}"));
}

}  // namespace
}  // namespace qccl::tools
