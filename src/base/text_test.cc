#include "base/text.h"

#include <gtest/gtest.h>

namespace qccl {
namespace {

using namespace std::string_literals;

TEST(Printable, leaves_printable_text_unchanged) {
  for (const std::string& text : {""s, "all_reduce(count=4)"s, "größe 数 😀"s, "\u00A0"s}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, a_control_character_becomes_a_blank) {
  EXPECT_EQ(printable("\x1B[31mred\r\n\t\0\x7F"s), " [31mred     ");
  EXPECT_EQ(printable("\u009B2J\u0080"), " 2J ");
}

TEST(Printable, bytes_that_are_not_utf_8_become_question_marks) {
  EXPECT_EQ(printable("\x9B\x32J"), "?2J");          // C1 as a single byte
  EXPECT_EQ(printable("\xC0\x9B"), "??");            // ESC in two bytes
  EXPECT_EQ(printable("\xE0\x80\x9B"), "???");       // in three
  EXPECT_EQ(printable("\xF0\x80\x80\x9B"), "????");  // in four
  EXPECT_EQ(printable("\xED\xA0\x80"), "???");       // half of a surrogate pair
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "????");  // beyond Unicode
  EXPECT_EQ(printable("cut \xE6\x95"), "cut ??");
}

TEST(TimeText, has_a_unit_that_suits_the_time) {
  EXPECT_EQ(time_text(1.234e-6), "1.23 us");
  EXPECT_EQ(time_text(0.0123), "12.3 ms");
  EXPECT_EQ(time_text(12.5), "12.5 s");
}

TEST(ParseNumber, takes_a_whole_text_or_nothing) {
  EXPECT_EQ(parse_number<int>("-7"), -7);
  EXPECT_EQ(parse_number<double>("2.5"), 2.5);
  for (const char* text : {"", " 7", "7 ", "+7", "7x", "x", "300"})
    EXPECT_EQ(parse_number<std::uint8_t>(text), std::nullopt);
}

}  // namespace
}  // namespace qccl
