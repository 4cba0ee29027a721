// h4's bytes for fixed inputs. make_h4_vectors.py computes them independently of the library, from the definition in
// kernels/h4/h4_reference.h. A change here changes the format: ranks of two versions would misread each other's data.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "kernels/every_simd.h"
#include "kernels/h4/h4.h"
#include "support/elements.h"

namespace qccl::testing {
namespace {

using kernels::H4Signs;

constexpr H4Signs kSigns{.seed = 0x1234567, .first_block = 4000000000u};

struct Golden {
  int bits;
  std::uint64_t decoded;  // FNV-1a of the floats
  std::string bytes;      // seed and block, scales, codes
};

// The first block has a positive scale (transformed once), the second a negative one (twice).
const std::vector<Golden> kGoldens = {
    // clang-format off
    {2, 0x8261A0ED7ABC4206,
     "6745230100286beec13c03b8"
     "92ca27109c10827218edf35bc1c8923289d631623b850aa2e2a2311b022d282a8833e85baaa35626ca0c4ac12aa5dde1"
     "2a284440364b26acdaa610338aaae850a287397fb94002d090c466030509aa2aa6b138a0583a688bb81f6a1a3adc80ea"
     "36e26e3868854c2b24b328ae22eb2b89a9848acc68a0944d2a8f06e018ea8916"},
    {3, 0xBFCBC4263E5C6E7E,
     "6745230100286bee313c6ab7"
     "30d049712c7000a5648aa6a653846420166932c5314a454140045326104a11410122d1e61112ac0c94199093004e9a93"
     "0400cd8118434948e1183026454491a5a95be530fad01955b22e3d8378caa9c57a690405573853edbddd0453b1f6e607"
     "045a32fb26c154f1359989420e12000418222505b560c042702a847024f901857c958920845a88061862444d41824202"
     "1649019985502d8a544f18d06080062c5dd976676e80217848d865f150f27fa7ed8cb6ac62c7862b7eb317c327faa81f"},
    {4, 0x96B26AEC012D6358,
     "6745230100286bee733c9eb7"
     "18895b13e000092ab0c53bbd16a13909a44b052b8b54ba1b192906bc08c5838a920c82ac8a0d6878b8c388069964b416"
     "a8816203599d4ad08a49002dbaa9923295e329268416905c34b9cd33b2c1b41c93b30e580fa120a8b9992b1302380a29"
     "910ceb648a994319b20233d118b9d3ba090860411b312898e39a171bb1b9ba54394c85cea403391232434b1c659489a9"
     "4904a232a298808c80cca989a9c312ab692adb80a054d0ac400ca0eb1b9d8c84a5538bc2a20162c5a9ee49108098a569"
     "98a20f6e9c6023e796d25821011298089a8c0c98463c68b1be1448260ce791c82ecb580c58a241080aac28b828d92891"
     "9aa091c348ab94412aa003ea24c99104"},
    // clang-format on
};

// A block of noise, and a block of 100 elements of which one is not zero.
std::vector<float> fixed_input() {
  std::vector<float> values(356);
  for (int i = 0; i < 256; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<float>((37 * i * i + 11) % 257 - 128) / 8;
  values[256 + 77] = -3;
  return values;
}

std::uint64_t fnv1a(std::span<const std::byte> bytes) {
  std::uint64_t value = 0xCBF29CE484222325;
  for (const std::byte byte : bytes) value = (value ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001B3;
  return value;
}

TEST(GoldenH4, bytes_and_what_they_decode_to_are_these_on_every_target) {
  const std::vector<float> values = fixed_input();
  kernels::on_every_simd([&] {
    for (const Golden& golden : kGoldens) {
      ByteVector bytes(kernels::h4_encoded_bytes({golden.bits}, values.size()));
      kernels::h4_encode({golden.bits, true}, kSigns, values.data(), values.size(), bytes.data());
      std::string hex;
      for (const std::byte byte : bytes) hex += fmt::format("{:02x}", std::to_integer<int>(byte));
      EXPECT_EQ(hex, golden.bytes) << golden.bits << " bits";
      std::vector<float> decoded(values.size());
      kernels::h4_decode({golden.bits}, bytes.data(), nullptr, decoded.data(), decoded.size());
      EXPECT_EQ(fnv1a(std::as_bytes(std::span(decoded))), golden.decoded) << golden.bits << " bits";
    }
  });
}

TEST(GoldenH4, blocks_were_transformed_once_and_twice) {
  for (const Golden& golden : kGoldens) {
    const auto high_byte = [&](std::size_t at) { return std::stoi(golden.bytes.substr(2 * at, 2), nullptr, 16); };
    EXPECT_LT(high_byte(9), 0x80) << golden.bits << " bits";
    EXPECT_GE(high_byte(11), 0x80) << golden.bits << " bits";
  }
}

}  // namespace
}  // namespace qccl::testing
