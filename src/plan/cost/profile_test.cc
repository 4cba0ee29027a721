#include "plan/cost/profile.h"

#include <gtest/gtest.h>

namespace qccl::plan {
namespace {

TEST(Profile, reads_back_what_it_writes) {
  const std::string text = to_text(default_profile());
  const auto profile = parse_profile(text);
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_EQ(to_text(profile.value()), text);
}

TEST(Profile, missing_keys_have_the_default_values) {
  const auto profile = parse_profile("# a slow wire\n\nwire.host_Gbps 0.1  # and this is a comment too\r\n");
  ASSERT_TRUE(profile.ok()) << profile.error().message;
  EXPECT_NEAR(profile.value().wire_rate, 12.5e6, 1);
  EXPECT_EQ(profile.value().shm.latency, default_profile().shm.latency);
  EXPECT_EQ(profile.value().machine, default_profile().machine);
}

TEST(Profile, names_the_wrong_line) {
  for (const char* line : {"wire.latency_us", "wire.latency_us fast", "wire.latency_us -1", "wire.latency_us nan",
                           "wire.latency_us 1 2", "wire.latency_us inf", "wires.latency_us 1", "codec_GBps",
                           "codec_GBps minmax 1", "codec_GBps minmax 0 1", "codec_GBps minmax 1 2 3"}) {
    const auto profile = parse_profile(std::string("copy_GBps 9\n") + line + "\nadd_GBps 9\n");
    ASSERT_FALSE(profile.ok()) << line;
    EXPECT_EQ(profile.error().kind, ErrorKind::invalid_argument);
    EXPECT_EQ(profile.error().message, "line 2 of the profile is not understood: \"" + std::string(line) + "\"");
  }
}

TEST(Profile, the_longest_matching_beginning_gives_a_codecs_speed) {
  Profile profile;
  profile.codecs = {{"minmax", 5, 6}, {"minmax:bits=4", 7, 8}, {"cast", 9, 4}};
  EXPECT_EQ(profile.speed_of("minmax:bits=4,bucket_size=1024").encode_rate, 7);
  EXPECT_EQ(profile.speed_of("minmax:bits=3,bucket_size=1024").encode_rate, 5);
  // An unknown codec counts as slow as the slowest.
  EXPECT_EQ(profile.speed_of("h4").encode_rate, 5);
  EXPECT_EQ(profile.speed_of("h4").decode_rate, 4);
  EXPECT_EQ(profile.speed_of("none").encode_rate, 0);
}

TEST(Profile, a_later_line_for_the_same_codec_wins) {
  const auto profile = parse_profile("codec_GBps h4 1 2\ncodec_GBps h4 3 4\n");
  ASSERT_TRUE(profile.ok());
  EXPECT_EQ(profile.value().speed_of("h4").encode_rate, 3e9);
  EXPECT_EQ(profile.value().codecs.size(), default_profile().codecs.size() + 1);
}

}  // namespace
}  // namespace qccl::plan
