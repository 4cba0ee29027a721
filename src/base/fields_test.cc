#include "base/fields.h"

#include <gtest/gtest.h>

#include <array>

namespace qccl {
namespace {

using namespace std::string_literals;

enum class Colour : std::uint8_t { red = 1, blue = 2 };

struct Message {
  Colour colour = Colour::red;
  std::uint32_t number = 0;
  bool is_new = false;
  double rate = 0;
  std::string name{};
  std::vector<std::string> words{};
  std::array<float, 2> weights{};

  bool operator==(const Message&) const = default;
};

constexpr std::size_t kMost = 8;

void visit(auto& fields, auto& message) {
  fields.integer(message.colour);
  fields.integer(message.number);
  fields.template integer<std::uint16_t>(message.is_new);
  fields.integer(message.rate);
  fields.string(message.name, kMost);
  fields.strings(message.words, 2, kMost);
  fields.values(std::span(message.weights));
}

const Message kMessage{Colour::blue, 0x01020304, true, 1.0, "ab", {"c", ""}, {1, -2}};
// By hand from the table of fields.h.
const std::string kBytes =
    "\x02"
    "\x04\x03\x02\x01"
    "\x01\0"
    "\0\0\0\0\0\0\xF0\x3F"
    "\x02\0\0\0\0\0\0\0ab"
    "\x02\0\0\0\0\0\0\0"
    "\x01\0\0\0\0\0\0\0c"
    "\0\0\0\0\0\0\0\0"
    "\x08\0\0\0\0\0\0\0"
    "\0\0\x80\x3F\0\0\0\xC0"s;

std::string encode(const Message& message) {
  FieldWriter writer;
  visit(writer, message);
  return writer.take();
}

FieldReader read(std::string_view bytes, Message& message) {
  FieldReader reader(bytes);
  visit(reader, message);
  return reader;
}

std::string error_of(std::string_view bytes) {
  Message message;
  const Status status = read(bytes, message).check_finished("the message");
  if (status) return "";
  EXPECT_EQ(status.error().kind, ErrorKind::corrupt_data);
  return status.error().message;
}

TEST(Fields, bytes_are_those_of_the_table) { EXPECT_EQ(encode(kMessage), kBytes); }

TEST(Fields, a_message_is_read_as_it_was_written) {
  Message message;
  const FieldReader reader = read(kBytes, message);
  EXPECT_TRUE(reader.finished());
  EXPECT_EQ(reader.taken(), kBytes.size());
  EXPECT_EQ(message, kMessage);
}

TEST(Fields, both_kinds_of_container_get_the_same_bytes) {
  FieldWriter<std::vector<std::byte>> writer;
  writer.reserve(kBytes.size());
  visit(writer, kMessage);
  EXPECT_EQ(as_text(writer.written()), kBytes);
  EXPECT_EQ(as_text(writer.take()), kBytes);
}

TEST(Fields, every_shorter_input_is_incomplete) {
  for (std::size_t bytes = 0; bytes < kBytes.size(); ++bytes) {
    Message message;
    const FieldReader reader = read(std::string_view(kBytes).substr(0, bytes), message);
    EXPECT_TRUE(reader.incomplete()) << bytes;
    EXPECT_FALSE(reader.malformed()) << bytes;
    EXPECT_EQ(error_of(std::string_view(kBytes).substr(0, bytes)), "the message is cut off");
  }
}

TEST(Fields, a_longer_input_is_not_finished) {
  Message message;
  EXPECT_TRUE(read(kBytes + "x", message).good());
  EXPECT_EQ(error_of(kBytes + "x"), "the message is too long");
}

TEST(Fields, lengths_beyond_the_limit_are_malformed_before_their_bytes_are_there) {
  for (const Message& message : {Message{.name = std::string(kMost + 1, 'n')}, Message{.words = {"1", "2", "3"}},
                                 Message{.words = {std::string(kMost + 1, 'w')}}}) {
    EXPECT_EQ(error_of(encode(message)), "the message has a field of a wrong length");
  }
  FieldReader reader(std::string_view("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"));
  std::string text = "before";
  reader.string(text, kMost);
  EXPECT_TRUE(reader.malformed());
  EXPECT_EQ(text, "");
}

TEST(Fields, another_number_of_values_is_malformed_and_leaves_them) {
  for (const std::size_t count : {0, 1, 3}) {
    FieldWriter writer;
    const std::vector<float> written(count, 7);
    writer.values(std::span(written));
    const std::string bytes = writer.take();
    FieldReader reader{std::string_view(bytes)};
    std::array<float, 2> values{1, 2};
    reader.values(std::span(values));
    EXPECT_TRUE(reader.malformed()) << count;
    EXPECT_EQ(values, (std::array<float, 2>{1, 2}));
  }
}

TEST(Fields, a_block_is_a_part_of_the_source) {
  FieldWriter writer;
  writer.block(std::as_bytes(std::span("abc", 3)));
  const std::string bytes = writer.take();
  ConstBytes block;
  FieldReader reader{std::string_view(bytes)};
  reader.block(block);
  EXPECT_TRUE(reader.finished());
  EXPECT_EQ(as_text(block), "abc");
  EXPECT_EQ(as_text(block).data(), bytes.data() + sizeof(std::uint64_t));

  FieldReader cut(std::string_view(bytes).substr(0, bytes.size() - 1));
  cut.block(block);
  EXPECT_FALSE(cut.good());
  EXPECT_TRUE(block.empty());
}

TEST(Fields, fields_after_an_error_are_empty) {
  const std::string bytes = "\x09\0\0\0\0\0\0\0\x01\x01\x01\x01"s;
  FieldReader reader{std::string_view(bytes)};
  std::string text;
  reader.string(text, kMost);
  std::uint32_t number = 5;
  reader.integer(number);
  std::vector<std::string> words;
  reader.strings(words, 2, kMost);
  EXPECT_TRUE(reader.malformed());
  EXPECT_EQ(number, 0u);
  EXPECT_TRUE(words.empty());
}

}  // namespace
}  // namespace qccl
