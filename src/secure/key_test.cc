#include "secure/key.h"

#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/expect_failure.h"
#include "secure/tls_pair.h"

namespace qccl::secure {
namespace {

// OpenSSL's own HKDF.
std::array<std::byte, 32> hkdf(std::string key, std::string info) {
  std::string salt = "qccl", digest = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
                                   OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt.data(), salt.size()),
                                   OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, key.data(), key.size()),
                                   OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
                                   OSSL_PARAM_construct_end()};
  EVP_KDF* const algorithm = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(algorithm);
  std::array<std::byte, 32> made{};
  EXPECT_EQ(EVP_KDF_derive(context, reinterpret_cast<unsigned char*>(made.data()), made.size(), parameters), 1);
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(algorithm);
  return made;
}

TEST(Key, derives_what_hkdf_does) {
  for (const std::string text : {"0123456789abcdef", "another key, of thirty-four bytes."}) {
    for (const char* use : {"", "qccl mesh", "qccl cards"}) {
      const Secret secret = key_of(text).derive(use);
      EXPECT_TRUE(equal(secret.bytes(), hkdf(text, use)));
    }
  }
}

TEST(Key, every_use_and_every_key_has_a_secret_of_its_own) {
  const Key one = key_of("sixteen bytes: 1"), other = key_of("sixteen bytes: 2");
  EXPECT_FALSE(equal(one.derive("a").bytes(), one.derive("b").bytes()));
  EXPECT_FALSE(equal(one.derive("a").bytes(), other.derive("a").bytes()));
  EXPECT_TRUE(equal(one.derive("a").bytes(), one.derive("a").bytes()));
}

// RFC 4231, case 2 with its key filled up to a block's beginning is no case; the empty key and message are known.
TEST(Key, authenticates_with_hmac_sha256) {
  const auto tag = authenticate(Secret(), {});
  EXPECT_EQ(std::to_integer<int>(tag[0]), 0xb6);
  EXPECT_EQ(std::to_integer<int>(tag[1]), 0x13);
  EXPECT_EQ(std::to_integer<int>(tag[31]), 0xad);
}

TEST(Key, a_wrong_length_is_refused_and_the_text_is_wiped_and_never_quoted) {
  for (const std::size_t bytes : {std::size_t{0}, Key::kMinBytes - 1, Key::kMaxBytes + 1}) {
    std::string text(bytes, 's');
    const auto refused = Key::from_text(text, "QCCL_KEY");
    expect_failure(refused, ErrorKind::invalid_argument, "QCCL_KEY has a key of " + std::to_string(bytes) + " bytes");
    EXPECT_EQ(refused.error().message.find("sss"), std::string::npos);
    EXPECT_TRUE(text.empty());
  }
  std::string shortest(Key::kMinBytes, 's'), longest(Key::kMaxBytes, 's');
  EXPECT_TRUE(Key::from_text(shortest, "").ok());
  EXPECT_TRUE(Key::from_text(longest, "").ok());
}

TEST(Key, one_line_end_does_not_count) {
  const Key plain = key_of("0123456789abcdef");
  for (const char* end : {"\n", "\r\n"}) {
    EXPECT_TRUE(equal(key_of(std::string("0123456789abcdef") + end).derive("a").bytes(), plain.derive("a").bytes()));
  }
  EXPECT_FALSE(equal(key_of("0123456789abcdef\n\n").derive("a").bytes(), plain.derive("a").bytes()));
}

TEST(Key, wiping_leaves_nothing_of_a_text) {
  std::string text(100, 's');
  const char* const memory = text.data();
  wipe(text);
  EXPECT_EQ(std::count(memory, memory + 100, 's'), 0);
}

TEST(Key, a_moved_secret_is_gone) {
  Secret one = key_of().derive("a");
  const Secret other = std::move(one);
  EXPECT_TRUE(std::ranges::all_of(one.bytes(), [](std::byte byte) { return byte == std::byte{}; }));
  EXPECT_TRUE(equal(other.bytes(), key_of().derive("a").bytes()));
}

class KeySource : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"QCCL_KEY", "QCCL_KEY_FILE", "QCCL_KEY_FD"}) ::unsetenv(name);
  }
};

TEST_F(KeySource, the_option_comes_before_the_environment) {
  EXPECT_EQ(find_key("").take_or_throw(), nullptr);
  EXPECT_EQ(key_source(""), "");
  ::setenv("QCCL_KEY", "a key of the environment", 1);
  EXPECT_TRUE(
      equal(find_key("").take_or_throw()->derive("a").bytes(), key_of("a key of the environment").derive("a").bytes()));
  EXPECT_TRUE(equal(find_key("a key of the program").take_or_throw()->derive("a").bytes(),
                    key_of("a key of the program").derive("a").bytes()));
}

TEST_F(KeySource, two_variables_contradict_each_other) {
  ::setenv("QCCL_KEY", "0123456789abcdef", 1);
  ::setenv("QCCL_KEY_FILE", "/nowhere", 1);
  expect_failure(find_key(""), ErrorKind::invalid_argument, "QCCL_KEY and QCCL_KEY_FILE are both set");
}

TEST_F(KeySource, an_empty_variable_does_not_mean_no_key) {
  for (const char* name : {"QCCL_KEY", "QCCL_KEY_FILE", "QCCL_KEY_FD"}) {
    ::setenv(name, "", 1);
    expect_failure(find_key(""), ErrorKind::invalid_argument, std::string(name) + " is set, but empty");
    EXPECT_TRUE(find_key("a key of the program").ok());
    clear();
  }
}

TEST_F(KeySource, a_file_that_is_not_there_is_named) {
  ::setenv("QCCL_KEY_FILE", "/nowhere/key", 1);
  expect_failure(find_key(""), ErrorKind::invalid_argument, "QCCL_KEY_FILE (/nowhere/key): can't open /nowhere/key");
}

TEST(Key, made_keys_differ_and_are_long_enough) {
  std::string one = make_key_text().take_or_throw(), other = make_key_text().take_or_throw();
  EXPECT_NE(one, other);
  EXPECT_EQ(one.size(), 64u);
  EXPECT_TRUE(Key::from_text(one, "").ok());
}

}  // namespace
}  // namespace qccl::secure
