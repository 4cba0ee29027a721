#include "bootstrap/store/store_protocol.h"

#include <gtest/gtest.h>

#include <random>

#include "bootstrap/test_support.h"

namespace qccl::bootstrap {
namespace {

using namespace std::string_literals;

struct Sample {
  StoreRequest request;
  std::string bytes;
};

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = {
      {{.query = Query::validate, .number = kStoreMagic}, "\x00\xCE\xF7\x85\x3C"s},
      {{.query = Query::set, .keys = {"/a"}, .value = "x\0z"s}, "\x01\x02\0\0\0\0\0\0\0/a\x03\0\0\0\0\0\0\0x\0z"s},
      {{.query = Query::get, .keys = {"/a"}}, "\x03\x02\0\0\0\0\0\0\0/a"s},
      {{.query = Query::get, .keys = {"/" + std::string(kMaxKeyBytes - 1, 'k')}},
       "\x03\0\x10\0\0\0\0\0\0/"s + std::string(kMaxKeyBytes - 1, 'k')},
      {{.query = Query::add, .keys = {"/n"}, .number = -2},
       "\x04\x02\0\0\0\0\0\0\0/n\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s},
      {{.query = Query::check, .keys = {"/a"}}, "\x05\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/a"s},
      {{.query = Query::wait, .keys = {"/a", "/b"}}, "\x06\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/a\x02\0\0\0\0\0\0\0/b"s},
      {{.query = Query::cancel_wait}, "\x0C"s},
      {{.query = Query::ping, .number = 0xFFFFFFFF}, "\x0D\xFF\xFF\xFF\xFF"s},
      {{.query = Query::will, .keys = {"/a"}, .values = {"x"}},
       "\x41\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0/a\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0x"s},
  };
  return all;
}

TEST(StoreProtocol, requests_have_torchs_bytes_in_both_directions) {
  for (const auto& [request, bytes] : samples()) {
    EXPECT_EQ(encode_request(request), bytes);
    const auto parsed = parse_request(bytes + "rest").take_or_throw();
    EXPECT_EQ(parsed.bytes, bytes.size());
    EXPECT_EQ(parsed.request.query, request.query);
    EXPECT_EQ(parsed.request.keys, request.keys);
    EXPECT_EQ(parsed.request.value, request.value);
    EXPECT_EQ(parsed.request.values, request.values);
    EXPECT_EQ(parsed.request.number, request.number);
  }
}

TEST(StoreProtocol, every_prefix_is_incomplete) {
  for (const auto& [request, bytes] : samples()) {
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const auto parsed = parse_request(std::string_view(bytes).substr(0, length)).take_or_throw();
      ASSERT_EQ(parsed.bytes, 0u) << "query " << static_cast<int>(request.query) << " cut at " << length;
    }
  }
}

void expect_corrupt(std::string_view bytes) {
  expect_failure(parse_request(bytes), ErrorKind::corrupt_data, "not a store request");
}

TEST(StoreProtocol, lengths_beyond_the_limits_are_refused_before_their_bytes_arrive) {
  const auto starts_like = [](const StoreRequest& request, std::size_t length_at, std::uint64_t length) {
    return encode_request(request).substr(0, length_at) + std::string(reinterpret_cast<const char*>(&length), 8);
  };
  expect_corrupt(starts_like({.query = Query::get, .keys = {"/key"}}, 1, kMaxKeyBytes + 1));
  expect_corrupt(starts_like({.query = Query::set, .keys = {"/key"}}, 13, kMaxValueBytes + 1));
  expect_corrupt(starts_like({.query = Query::wait, .keys = {"/key"}}, 1, kMaxKeysPerQuery + 1));
  expect_corrupt(starts_like({.query = Query::will, .keys = {"/key"}, .values = {""}}, 1, kMaxWillKeys + 1));
}

TEST(StoreProtocol, unknown_queries_are_refused) {
  expect_corrupt("\x02");
  expect_corrupt("GET / HTTP/1.1\r\n\r\n");
  expect_corrupt("\xFF");
}

TEST(StoreProtocol, random_bytes_never_read_outside) {
  std::mt19937_64 random(20261121);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? random() : random() % 14);
    auto parsed = parse_request(bytes);
    if (!parsed.ok()) continue;
    EXPECT_LE(parsed->bytes, bytes.size());
  }
}

}  // namespace
}  // namespace qccl::bootstrap
