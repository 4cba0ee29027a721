// How `qccl perf` reads lists of codecs.
#include "tools/perf/perf_options.h"

#include <gtest/gtest.h>

namespace qccl::tools {
namespace {

using Specs = std::vector<std::string>;

TEST(PerfOptions, a_comma_ends_a_codec_unless_a_setting_follows) {
  EXPECT_EQ(split_compressions("none"), Specs{"none"});
  EXPECT_EQ(split_compressions("minmax:bits=4,bucket_size=128"), Specs{"minmax:bits=4,bucket_size=128"});
  EXPECT_EQ(split_compressions("none,minmax:bits=4,bucket_size=128,cast,minmax:bits=8,cast:type=fp16"),
            (Specs{"none", "minmax:bits=4,bucket_size=128", "cast", "minmax:bits=8", "cast:type=fp16"}));
  EXPECT_EQ(split_compressions("minmax:bits=4;none;cast:type=bf16"),
            (Specs{"minmax:bits=4", "none", "cast:type=bf16"}));
}

TEST(PerfOptions, text_that_names_no_codec_is_left_for_the_parser_to_refuse) {
  EXPECT_EQ(split_compressions(""), Specs{""});
  EXPECT_EQ(split_compressions("bits=4"), Specs{"bits=4"});
  EXPECT_EQ(split_compressions("none,"), (Specs{"none", ""}));
  EXPECT_EQ(split_compressions("none;bits=4"), (Specs{"none", "bits=4"}));
}

}  // namespace
}  // namespace qccl::tools
