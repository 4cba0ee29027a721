// The wire format, byte for byte. make_vectors.py computes the bytes independently of the library, from
// the tables in wire/frame.h. A change here is a new wire version.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "engine/call/call_arguments.h"
#include "support/sim_call.h"
#include "wire/frame.h"

namespace qccl::testing {
namespace {

std::string hex(ConstBytes bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<int>(byte));
  return text;
}

constexpr const char* kFrame =
    "51434631010001808877665544332211"
    "0807060504030201a8a7a6a5a4a3a2a1"
    "0d0c0b0a1d1c1b1a0000040000000000"
    "f8f7f6f5f4f3f2f13d3c3b3a6f0f5c44";

constexpr const char* kGoodbye =
    "51434631070000000000000000000000"
    "00000000000000000000000000000000"
    "00000000000000000000000000000000"
    "00000000000000000000000018bcd0a0";

constexpr const char* kHello =
    "5143434c48454c4f0300000003000000"
    "05000000080000008877665544332211"
    "08000200000000000000000000000000"
    "000000000000000035ed6dc9db498eee";

wire::FrameHeader frame_header() {
  return {.kind = wire::FrameKind::data,
          .phase = 0x8001,
          .group = 0x1122334455667788,
          .sequence = 0x0102030405060708,
          .fingerprint = 0xA1A2A3A4A5A6A7A8,
          .chunk = 0x0A0B0C0D,
          .slice = 0x1A1B1C1D,
          .payload_bytes = 0x00040000,
          .payload_checksum = 0xF1F2F3F4F5F6F7F8,
          .eager_consumed = 0x3A3B3C3D};
}

TEST(GoldenFrame, header_is_these_64_bytes) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  wire::encode_header(frame_header(), bytes.data());
  EXPECT_EQ(hex(bytes), kFrame);
  wire::encode_header({.kind = wire::FrameKind::goodbye}, bytes.data());
  EXPECT_EQ(hex(bytes), kGoodbye);
}

TEST(GoldenFrame, every_field_is_read_back) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  wire::encode_header(frame_header(), bytes.data());
  const auto decoded = wire::decode_header(bytes.data());
  ASSERT_TRUE(decoded.ok());
  std::array<std::byte, wire::kHeaderBytes> again;
  wire::encode_header(decoded.value(), again.data());
  EXPECT_EQ(hex(again), kFrame);
}

// IEEE 754 of the settings: 4 is 0x4010000000000000, 1024 is 0x4090000000000000.
constexpr const char* kEnvelope = "0807060504030201dccdbeef06000000";
constexpr const char* kCompressedEnvelope =
    "0807060504030201dccdbeef06020000"
    "00000000000010400000000000009040"
    "00000000000000000000000000000000"
    "00000000000000000000000000000000";

TEST(GoldenEnvelope, has_the_settings_of_a_codec_only_with_one) {
  wire::Envelope envelope{.count = 0x0102030405060708, .tag = static_cast<std::int32_t>(0xEFBECDDC)};
  std::array<std::byte, wire::kMostEnvelopeBytes> bytes{};
  for (const auto& [codec, expected] : {std::pair{0u, kEnvelope}, {2u, kCompressedEnvelope}}) {
    envelope.compression = {.codec = codec};
    if (codec != 0) envelope.compression.settings = {4, 1024};
    wire::encode_envelope(envelope, bytes.data());
    const ConstBytes written = ConstBytes(bytes).first(wire::envelope_bytes(envelope));
    EXPECT_EQ(hex(written), expected);
    EXPECT_EQ(wire::envelope_bytes(written), written.size());
    const auto decoded = wire::decode_envelope(written);
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded.value().count, envelope.count);
    EXPECT_EQ(decoded.value().tag, envelope.tag);
    EXPECT_EQ(decoded.value().compression, envelope.compression);
    const auto cut = wire::decode_envelope(written.first(written.size() - 1));
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.error().kind, ErrorKind::corrupt_data);
  }
}

TEST(GoldenFrame, any_flipped_bit_is_refused) {
  for (std::size_t bit = 0; bit < 8 * wire::kHeaderBytes; ++bit) {
    std::array<std::byte, wire::kHeaderBytes> bytes;
    wire::encode_header(frame_header(), bytes.data());
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto decoded = wire::decode_header(bytes.data());
    ASSERT_FALSE(decoded.ok()) << "bit " << bit;
    EXPECT_EQ(decoded.error().kind, ErrorKind::corrupt_data);
  }
}

TEST(GoldenFrame, a_well_formed_header_with_an_unknown_kind_or_an_oversized_payload_is_refused) {
  std::array<std::byte, wire::kHeaderBytes> bytes;
  for (const int kind : {0, 16, 65535}) {
    wire::encode_header({.kind = static_cast<wire::FrameKind>(kind)}, bytes.data());
    EXPECT_FALSE(wire::decode_header(bytes.data()).ok()) << "kind " << kind;
  }
  wire::encode_header({.payload_bytes = wire::kPayloadLimit + 1}, bytes.data());
  EXPECT_FALSE(wire::decode_header(bytes.data()).ok());
  wire::encode_header({.payload_bytes = wire::kPayloadLimit}, bytes.data());
  EXPECT_TRUE(wire::decode_header(bytes.data()).ok());
}

TEST(GoldenFrame, a_number_lies_at_byte_44_and_can_be_set_later) {
  std::array<std::byte, wire::kHeaderBytes> numbered, later;
  auto header = frame_header();
  wire::encode_header(header, later.data());
  header.number = 0xA1B2C3D4;
  wire::encode_header(header, numbered.data());
  wire::set_frame_number(later.data(), header.number);
  EXPECT_EQ(hex(later), hex(numbered));
  EXPECT_EQ(load<std::uint32_t>(numbered.data() + 44), header.number);
  EXPECT_EQ(wire::decode_header(numbered.data()).take_or_throw().number, header.number);
}

TEST(GoldenFrame, payload_checksum_is_xxh3) {
  std::array<std::byte, 256> payload;
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i);
  EXPECT_EQ(wire::payload_checksum(payload), 0x9408a4433b952d71u);
  EXPECT_EQ(wire::payload_checksum({}), 0x2d06800538d394c2u);
}

TEST(GoldenHello, data_in_reserved_bytes_is_refused) {
  std::array<std::byte, wire::kHelloBytes> bytes;
  for (std::size_t place = 36; place < 56; ++place) {
    wire::encode_hello({.rank = 3, .target = 5, .world = 8}, bytes.data());
    bytes[place] = std::byte{1};
    store(bytes.data() + 56, wire::payload_checksum({bytes.data(), 56}));
    const auto decoded = wire::decode_hello(bytes.data());
    ASSERT_FALSE(decoded.ok()) << "byte " << place;
    EXPECT_NE(decoded.error().message.find("reserved"), std::string::npos) << decoded.error().message;
  }
}

TEST(GoldenHello, is_these_64_bytes) {
  const wire::Hello hello{
      .rank = 3, .target = 5, .world = 8, .job = 0x1122334455667788, .wanted_connections = 8, .connection = 2};
  std::array<std::byte, wire::kHelloBytes> bytes;
  wire::encode_hello(hello, bytes.data());
  EXPECT_EQ(hex(bytes), kHello);
  EXPECT_EQ(wire::kWireVersion, 3u) << "another version has other vectors";
}

TEST(GoldenHello, a_connection_out_of_range_is_refused_but_another_version_is_left_to_its_check) {
  std::array<std::byte, wire::kHelloBytes> bytes;
  for (const auto& [wanted, connection] : {std::pair{0, 0}, {17, 0}, {2, 2}, {65535, 65534}}) {
    wire::Hello hello{.rank = 3, .target = 5, .world = 8};
    hello.wanted_connections = static_cast<std::uint16_t>(wanted);
    hello.connection = static_cast<std::uint16_t>(connection);
    wire::encode_hello(hello, bytes.data());
    EXPECT_FALSE(wire::decode_hello(bytes.data()).ok()) << connection << " of " << wanted;
    hello.version = 1;
    wire::encode_hello(hello, bytes.data());
    EXPECT_TRUE(wire::decode_hello(bytes.data()).ok()) << connection << " of " << wanted;
  }
}

// Ranks compare fingerprints, so two builds must compute the same one.
TEST(GoldenFingerprint, of_a_call_is_this_number) {
  engine::ResolvedCall call = make_call(Collective::all_reduce, 1024, DataType::float32, 4,
                                        {.compression = minmax({.bits = 4}), .algorithm = Algorithm::sra});
  call.slice_bytes = 131072;
  EXPECT_EQ(call.fingerprint(), 0x080ed06ea8ad8afcu);
  call = make_call(Collective::broadcast, 7, DataType::uint8, 4, {.root = 2, .algorithm = Algorithm::one_shot});
  call.slice_bytes = 131072;
  EXPECT_EQ(call.fingerprint(), 0xfca6a86d774fd6d2u);
}

TEST(GoldenFingerprint, every_field_of_a_call_counts) {
  const auto base = make_call(Collective::all_reduce, 1000, DataType::float32, 4, {.compression = minmax({.bits = 4})});
  std::vector<engine::ResolvedCall> others(12, base);
  others[0].collective = Collective::reduce_scatter;
  others[1].count = 1001;
  others[2].type = DataType::bfloat16;
  others[3].op = ReduceOp::avg;
  others[4].root = 1;
  others[5].algorithm = Algorithm::one_shot;
  others[6].board = true;
  others[7].slice_bytes = 4096;
  others[8].compression = minmax({.bits = 5});
  others[9].compression = minmax({.bits = 4, .bucket_size = 512});
  others[10].compression = cast(DataType::bfloat16);
  others[11].compression = cast(DataType::float16);
  for (std::size_t i = 0; i < others.size(); ++i) {
    EXPECT_NE(others[i].fingerprint(), base.fingerprint()) << others[i].describe();
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(others[i].fingerprint(), others[j].fingerprint());
  }
}

}  // namespace
}  // namespace qccl::testing
