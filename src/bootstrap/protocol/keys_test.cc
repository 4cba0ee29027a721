#include "bootstrap/protocol/keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace qccl::bootstrap {
namespace {

TEST(Keys, a_name_is_read_as_it_was_written) {
  for (const KeyRow& row : kKeys) {
    const KeyNumbers numbers = {row.pattern.find('/') == std::string_view::npos ? 0 : 3, 4};
    const std::string name = name_of(row, numbers);
    const auto parsed = parse_key(row.place, name);
    ASSERT_TRUE(parsed) << name;
    EXPECT_EQ(parsed->row, &row) << name;
    EXPECT_EQ(name_of(row, parsed->numbers), name);
  }
  EXPECT_EQ(key("G/card/R", 2U, 11), "2/card/11");
  EXPECT_EQ(key("T/C/seat", std::int64_t{7}, 1), "7/1/seat");
  EXPECT_EQ(key("refused"), "refused");
}

TEST(Keys, a_name_belongs_to_one_place) {
  EXPECT_FALSE(parse_key(Place::start, "tickets"));
  EXPECT_FALSE(parse_key(Place::list, "generation"));
  EXPECT_FALSE(parse_key(Place::door, "door/1"));
}

TEST(Keys, jobs_with_similar_names_share_none) {
  EXPECT_EQ(key_prefix("a job", 2), "qccl/a%20job/2/");
  EXPECT_EQ(key_prefix(door_name("job"), 0), "qccl/job%2Fdoor/0/");
  EXPECT_NE(key_prefix("a/1", 2), key_prefix("a", 1) + "2/");
}

const char* const kPlaces[] = {"start", "list of doors", "door"};
const char* const kWriters[] = {"the server", "ranks", "newcomers"};
const char* const kFormats[] = {"a count",          "a count, 1 at a time, or `1`",
                                "text, 128 bytes",  "a record",
                                "a failed outcome", "text, 4096 bytes",
                                "a seat",           "`1` or nothing",
                                "nothing"};
const char* const kTimes[] = {"at any time", "with a place in G", "without a ticket", "in call C of ticket T"};

template <class Names, class Value>
const char* name_in(const Names& names, Value value) {
  return names[static_cast<std::size_t>(value)];
}

TEST(Keys, the_page_has_this_table) {
  std::string table = "| store | key | clients that write it | as | when | meaning |\n|---|---|---|---|---|---|\n";
  for (const KeyRow& row : kKeys) {
    table += fmt::format("| {} | `{}` | {} | {} | {} | {} |\n", name_in(kPlaces, row.place), row.pattern,
                         name_in(kWriters, row.writer), name_in(kFormats, row.format), name_in(kTimes, row.when),
                         row.meaning);
  }
  const auto path = std::filesystem::path(__FILE__).parent_path() / "../../../docs/internals.md";
  std::ifstream file(path);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(page.find("\n" + table), std::string::npos) << "docs/internals.md should have:\n" << table;
}

}  // namespace
}  // namespace qccl::bootstrap
