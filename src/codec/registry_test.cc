#include "codec/registry.h"

#include <cmath>
#include <set>

#include "gtest/gtest.h"

namespace qccl {
namespace {

TEST(MakeCodec, none_has_no_codec) { EXPECT_EQ(make_codec(none()).take_or_throw(), nullptr); }

TEST(MakeCodec, refuses_what_does_not_exist) {
  const Compression valid = minmax();
  for (const double bits : {-1.0, 0.0, 33.0, 4.5, std::nan(""), HUGE_VAL}) {
    Compression wrong = valid;
    wrong.settings[0] = bits;
    const auto result = make_codec(wrong);
    ASSERT_FALSE(result.ok()) << bits;
    EXPECT_EQ(result.error().kind, ErrorKind::invalid_argument);
    EXPECT_NE(result.error().message.find(allowed_compressions()), std::string::npos);
  }
  for (const double bucket_size : {0.0, 65537.0}) {
    Compression wrong = valid;
    wrong.settings[1] = bucket_size;
    EXPECT_FALSE(make_codec(wrong).ok());
  }
  Compression too_many = valid;
  too_many.settings.back() = 1;
  EXPECT_FALSE(make_codec(too_many).ok());
  const Compression unknown{.codec = 1000};
  EXPECT_FALSE(make_codec(unknown).ok());
  EXPECT_EQ(unknown.to_string(), "codec 1000");
  EXPECT_EQ(unknown.name(), "unknown");
}

TEST(Registry, every_entry_can_be_named_explained_and_made) {
  std::set<std::string_view> names;
  EXPECT_EQ(codec_list()[0]->name, "none");
  for (const CodecEntry* entry : codec_list()) {
    EXPECT_TRUE(names.insert(entry->name).second) << entry->name;
    EXPECT_FALSE(entry->summary.empty() || entry->layout.empty() || entry->bound.empty()) << entry->name;
    EXPECT_LE(entry->settings.size(), Compression::kMaxSettings);
    for (const CodecSetting& setting : entry->settings) {
      EXPECT_TRUE(allows(setting, setting.default_value)) << entry->name << " " << setting.key;
      EXPECT_FALSE(setting.meaning.empty()) << entry->name << " " << setting.key;
    }
    const Compression by_default = Compression::parse(entry->name);
    EXPECT_EQ(by_default.name(), entry->name);
    EXPECT_EQ(Compression::parse(by_default.to_string()), by_default);
    for (const Compression& example : examples_of(*entry)) EXPECT_EQ(example.name(), entry->name);
    EXPECT_FALSE(examples_of(*entry).empty());
  }
}

TEST(Compression, a_setting_is_found_by_its_name) {
  EXPECT_EQ(minmax({.bits = 4, .bucket_size = 64}).setting("bucket_size"), 64);
  EXPECT_EQ(cast(DataType::float16).setting("type"), 1);
  EXPECT_THROW(minmax().setting("type"), Error);
  EXPECT_THROW(none().setting("bits"), Error);
}

}  // namespace
}  // namespace qccl
