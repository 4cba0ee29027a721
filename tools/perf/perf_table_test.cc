// How `qccl perf` reads lists of codecs; nccl-tests' rule for numbers and its rounding of counts.
#include "tools/perf/perf_table.h"

#include <gtest/gtest.h>

namespace qccl::tools {
namespace {

TEST(PerfTable, numbers_lose_decimals_before_they_lose_their_column) {
  EXPECT_EQ(fit(0, 7), "0.00");
  EXPECT_EQ(fit(1234.567, 7), "1234.57");
  EXPECT_EQ(fit(12345.67, 7), "12345.7");
  EXPECT_EQ(fit(123456.7, 7), "123457");
  EXPECT_EQ(fit(1234567.8, 7), "1234568");
  EXPECT_EQ(fit(12345678.9, 7), "1.2e+07");
  EXPECT_EQ(fit(999.999, 6), "1000.0");
  EXPECT_EQ(fit(123.456, 6), "123.46");
  EXPECT_EQ(fit(1234567, 6), "1e+06");
}

TEST(PerfCase, counts_per_rank_are_whole_16_bytes) {
  EXPECT_EQ(count_for(Collective::all_reduce, 1001, DataType::float32, 4), 250u);
  EXPECT_EQ(count_for(Collective::all_gather, 1001, DataType::float32, 4), 60u);
  EXPECT_EQ(count_for(Collective::reduce_scatter, 1001, DataType::uint8, 4), 240u);
  EXPECT_EQ(count_for(Collective::all_gather, 4, DataType::float32, 4), 0u);
  EXPECT_EQ(count_for(Collective::scatter, 1001, DataType::float32, 4), 60u);
  EXPECT_EQ(count_for(kSendrecv, 1001, DataType::float32, 4), 250u);
}

TEST(PerfCase, bus_factors_are_nccl_tests) {
  Case c;
  c.world = 4;
  EXPECT_DOUBLE_EQ(bus_factor(c), 1.5);
  c.collective = Collective::reduce_scatter;
  EXPECT_DOUBLE_EQ(bus_factor(c), 0.75);
  for (const Collective half : {Collective::gather, Collective::scatter, Collective::all_to_all}) {
    c.collective = half;
    EXPECT_DOUBLE_EQ(bus_factor(c), 0.75);
  }
  for (const Operation whole : {Operation(Collective::broadcast), Operation(Collective::reduce), kSendrecv}) {
    c.collective = whole;
    EXPECT_DOUBLE_EQ(bus_factor(c), 1);
  }
}

TEST(PerfBound, uncompressed_bytes_are_what_the_plan_sends) {
  Case c;
  c.world = 4;
  c.count = 4096;
  EXPECT_EQ(uncompressed_bytes(c, Algorithm::sra, 0), 2u * 3 * 1024 * 4);
  EXPECT_EQ(uncompressed_bytes(c, Algorithm::one_shot, 0), 3u * 4096 * 4);
  EXPECT_EQ(uncompressed_bytes(c, Algorithm::ring, 0), 2u * 3 * 1024 * 4);
  c.collective = Collective::reduce_scatter;
  EXPECT_EQ(uncompressed_bytes(c, Algorithm::one_shot, 2), 3u * 4096 * 4);
  c.collective = Collective::all_gather;
  EXPECT_EQ(uncompressed_bytes(c, Algorithm::ring, 2), 3u * 4096 * 4);
}

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
