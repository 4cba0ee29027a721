#include "secure/tls.h"

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "base/expect_failure.h"
#include "secure/tls_pair.h"

namespace qccl::secure {
namespace {

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Moves all of `sent` in pieces of these sizes, one end after the other, and returns what arrives.
std::vector<std::byte> pass(Stream& from, Stream& to, const std::vector<std::byte>& sent,
                            const std::vector<std::size_t>& sizes) {
  std::vector<ConstBytes> pieces;
  std::size_t cut = 0;
  for (std::size_t i = 0; cut < sent.size(); ++i) {
    const std::size_t bytes = std::min(sizes[i % sizes.size()], sent.size() - cut);
    pieces.push_back(ConstBytes(sent).subspan(cut, bytes));
    cut += bytes;
  }
  std::vector<std::byte> got(sent.size());
  std::size_t arrived = 0;
  for (int idle = 0; arrived < got.size() && idle < 100; ++idle) {
    os::IoResult io = from.write_some(std::span<const ConstBytes>(pieces));
    EXPECT_FALSE(io.lost()) << os::describe(io);
    for (std::size_t left = io.bytes; left > 0;) {
      const std::size_t bytes = std::min(left, pieces.front().size());
      pieces.front() = pieces.front().subspan(bytes);
      if (pieces.front().empty()) pieces.erase(pieces.begin());
      left -= bytes;
    }
    do {
      io = to.read_some(Bytes(got).subspan(arrived, std::min<std::size_t>(50'000, got.size() - arrived)));
      EXPECT_FALSE(io.lost()) << os::describe(io);
      arrived += io.bytes;
      if (io.ok()) idle = 0;
    } while (io.ok() && arrived < got.size());
  }
  EXPECT_EQ(arrived, got.size());
  return got;
}

TEST(Tls, both_ends_with_one_secret_join_and_know_the_identity) {
  TlsPair pair;
  pair.join();
  EXPECT_EQ(pair.client.tls()->identity(), "one to two");
  EXPECT_EQ(pair.server.tls()->identity(), "one to two");
}

TEST(Tls, another_key_is_an_error_at_both_ends) {
  TlsPair pair("sixteen other bytes");
  const auto [client, server] = pair.shake_hands();
  expect_failure(client, ErrorKind::misuse, "refused this rank's key");
  expect_failure(server, ErrorKind::misuse, "has another key");
}

TEST(Tls, an_identity_that_does_not_belong_here_is_an_error_at_both_ends) {
  TlsPair pair("sixteen bytes, or more", "one to three");
  const auto [client, server] = pair.shake_hands();
  expect_failure(client, ErrorKind::misuse, "refused this rank's key");
  expect_failure(server, ErrorKind::misuse, "calls itself one to three");
}

// A TLS server without the key: it ignores what the client offers and shows a certificate that it has made itself.
class CertificateServer {
 public:
  explicit CertificateServer(int fd) {
    X509_gmtime_adj(X509_getm_notBefore(certificate_.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate_.get()), 3600);
    EXPECT_EQ(X509_set_pubkey(certificate_.get(), key_.get()), 1);
    EXPECT_GT(X509_sign(certificate_.get(), key_.get(), nullptr), 0);
    EXPECT_EQ(SSL_CTX_use_certificate(context_.get(), certificate_.get()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey(context_.get(), key_.get()), 1);
    ssl_.reset(SSL_new(context_.get()));
    EXPECT_EQ(SSL_set_fd(ssl_.get(), fd), 1);
  }
  bool accept() { return SSL_accept(ssl_.get()) == 1; }
  std::string read() {
    std::string text(100, '\0');
    std::size_t bytes = 0;
    SSL_read_ex(ssl_.get(), text.data(), text.size(), &bytes);
    return text.substr(0, bytes);
  }

 private:
  template <auto free>
  struct Free {
    void operator()(auto* owned) const { free(owned); }
  };
  std::unique_ptr<EVP_PKEY, Free<&EVP_PKEY_free>> key_{EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")};
  std::unique_ptr<X509, Free<&X509_free>> certificate_{X509_new()};
  std::unique_ptr<SSL_CTX, Free<&SSL_CTX_free>> context_{SSL_CTX_new(TLS_server_method())};
  std::unique_ptr<SSL, Free<&SSL_free>> ssl_;
};

TEST(Tls, a_server_that_shows_a_certificate_in_place_of_the_key_is_refused) {
  TlsPair pair;
  CertificateServer server(pair.server.get());
  Result<bool> done = false;
  for (int turn = 0; turn < 5 && done.ok() && !*done; ++turn) {
    done = pair.client.tls()->shake_hands();
    server.accept();
  }
  expect_failure(done, ErrorKind::corrupt_data, "shows a certificate in place of this job's key");
  static_cast<void>(pair.client.write_some(random_bytes(10)));
  EXPECT_EQ(server.read(), "");
}

TEST(Tls, a_peer_that_speaks_something_else_is_told_apart) {
  TlsPair pair;
  const std::vector<std::byte> hello = random_bytes(64);
  ASSERT_NE(hello[0], Tls::kFirstByte);
  ASSERT_EQ(os::write_some(pair.server.get(), hello).bytes, hello.size());
  expect_failure(pair.client.tls()->shake_hands(), ErrorKind::corrupt_data, "speaks no TLS");
  TlsPair brief;
  ASSERT_EQ(os::write_some(brief.server.get(), ConstBytes(hello).first(1)).bytes, 1u);
  expect_failure(brief.client.tls()->shake_hands(), ErrorKind::corrupt_data, "speaks no TLS");
  TlsPair other;
  ASSERT_EQ(os::write_some(other.client.get(), hello).bytes, hello.size());
  expect_failure(other.server.tls()->shake_hands(), ErrorKind::corrupt_data, "speaks no TLS");
}

TEST(Tls, a_peer_that_leaves_is_lost) {
  TlsPair pair;
  EXPECT_FALSE(pair.client.tls()->shake_hands().take_or_throw());
  pair.client.reset();
  expect_failure(
      [&] {
        for (int turn = 0;; ++turn) {
          auto done = pair.server.tls()->shake_hands();
          if (!done || turn > 5) return done;
        }
      }(),
      ErrorKind::peer_lost, "during the handshake");
}

// A record header announces 16 KiB, which come a byte at a time.
TEST(Tls, a_handshake_without_end_is_refused) {
  TlsPair pair;
  std::vector<std::byte> flood(EncryptedSocket::kMaxHandshakeBytes + 64);
  flood[0] = Tls::kFirstByte;
  flood[1] = std::byte{3};
  flood[2] = std::byte{1};
  flood[3] = std::byte{0x40};
  flood[5] = std::byte{1};  // ClientHello, of 64 KiB
  flood[6] = std::byte{1};
  ASSERT_EQ(os::write_some(pair.client.get(), flood).bytes, flood.size());
  expect_failure(pair.server.tls()->shake_hands(), ErrorKind::corrupt_data, "sent too much for a handshake");
}

TEST(Tls, carries_pieces_of_all_sizes_both_ways_through_full_sockets) {
  TlsPair pair;
  pair.join();
  pair.client.tls()->read_ahead();
  pair.server.tls()->read_ahead();
  const auto sent = random_bytes(3'000'000);
  for (const std::vector<std::size_t>& sizes :
       std::vector<std::vector<std::size_t>>{{64, 131072}, {1, 2, 3, 16383, 16384, 16385}, {500'000}}) {
    EXPECT_EQ(pass(pair.client, pair.server, sent, sizes), sent);
    EXPECT_EQ(pass(pair.server, pair.client, sent, sizes), sent);
  }
}

TEST(Tls, goes_on_with_new_keys) {
  TlsPair pair;
  pair.join();
  pair.client.tls()->set_rekey_interval(100'000);
  const auto sent = random_bytes(1'000'000);
  EXPECT_EQ(pass(pair.client, pair.server, sent, {30'000}), sent);
}

TEST(Tls, the_bytes_on_the_way_are_not_the_bytes_sent) {
  TlsPair pair;
  pair.join();
  const auto sent = random_bytes(1000);
  ASSERT_EQ(pair.client.write_some(sent).bytes, sent.size());
  std::vector<std::byte> seen(4096);
  seen.resize(os::read_some(pair.server.get(), seen).bytes);
  EXPECT_GT(seen.size(), sent.size());
  EXPECT_TRUE(std::ranges::search(seen, ConstBytes(sent).first(8)).empty());
}

TEST(Tls, every_changed_bit_is_seen_and_nothing_changed_is_delivered) {
  for (std::size_t bit = 0; bit < 8 * (5 + 100 + 17); bit += 7) {
    TlsPair pair;
    pair.join();
    ASSERT_EQ(pair.client.write_some(random_bytes(100)).bytes, 100u);
    std::vector<std::byte> seen(1000);
    seen.resize(os::read_some(pair.server.get(), seen).bytes);
    ASSERT_EQ(seen.size(), 5u + 100 + 17);
    seen[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_EQ(os::write_some(pair.client.get(), seen).bytes, seen.size());
    os::end_sending(pair.client.get());
    std::vector<std::byte> got(1000);
    const os::IoResult io = pair.server.read_some(got);
    EXPECT_EQ(io.bytes, 0u) << bit;
    EXPECT_TRUE(io.lost()) << bit;
  }
}

TEST(Tls, a_repeated_record_is_refused) {
  TlsPair pair;
  pair.join();
  ASSERT_EQ(pair.client.write_some(random_bytes(100)).bytes, 100u);
  std::vector<std::byte> seen(1000);
  seen.resize(os::read_some(pair.server.get(), seen).bytes);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(os::write_some(pair.client.get(), seen).bytes, seen.size());
  std::vector<std::byte> got(1000);
  EXPECT_EQ(pair.server.read_some(got).bytes, 100u);
  const os::IoResult again = pair.server.read_some(got);
  EXPECT_TRUE(again.lost());
  EXPECT_NE(os::describe(again).find("fail authentication"), std::string::npos) << os::describe(again);
}

TEST(Tls, what_was_recorded_is_refused_by_another_connection) {
  TlsPair one;
  one.join();
  ASSERT_EQ(one.client.write_some(random_bytes(100)).bytes, 100u);
  std::vector<std::byte> seen(1000);
  seen.resize(os::read_some(one.server.get(), seen).bytes);
  TlsPair other;
  other.join();
  ASSERT_EQ(os::write_some(other.client.get(), seen).bytes, seen.size());
  std::vector<std::byte> got(1000);
  EXPECT_TRUE(other.server.read_some(got).lost());
}

// The client's last message and what follows it without TLS arrive together.
TEST(Tls, a_connection_can_go_on_without_it) {
  TlsPair pair;
  pair.join();
  const auto first = random_bytes(64), second = random_bytes(200, 2);
  ASSERT_EQ(pair.client.write_some(first).bytes, first.size());
  pair.client.set_tls(nullptr);
  ASSERT_EQ(pair.client.write_some(second).bytes, second.size());
  std::vector<std::byte> got(64), rest(1000);
  ASSERT_EQ(pair.server.read_some(got).bytes, got.size());
  EXPECT_EQ(got, first);
  pair.server.set_tls(nullptr);
  rest.resize(pair.server.read_some(rest).bytes);
  EXPECT_EQ(rest, second);
}

TEST(Tls, has_no_input_left_after_the_last_byte_is_read) {
  for (const bool reads_ahead : {false, true}) {
    TlsPair pair;
    pair.join();
    if (reads_ahead) pair.server.tls()->read_ahead();
    ASSERT_EQ(pair.client.write_some(random_bytes(100)).bytes, 100u);
    std::vector<std::byte> got(100);
    EXPECT_EQ(pair.server.read_some(got).bytes, 100u);
    EXPECT_FALSE(pair.server.has_input());
    const SteadyClock clock;
    EXPECT_FALSE(pair.server.wait_readable(clock.now(), clock).take_or_throw());
  }
}

// The changed record comes in one read with a good one, and nothing follows.
TEST(Tls, a_changed_record_behind_a_good_one_is_noticed_at_once_and_named_by_reads_and_writes) {
  TlsPair pair;
  pair.join();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(pair.client.write_some(random_bytes(100)).bytes, 100u);
  std::vector<std::byte> seen(1000), got(1000);
  seen.resize(os::read_some(pair.server.get(), seen).bytes);
  seen.back() ^= std::byte{1};
  pair.server.tls()->read_ahead();
  ASSERT_EQ(os::write_some(pair.client.get(), seen).bytes, seen.size());
  EXPECT_EQ(pair.server.read_some(got).bytes, 100u);
  EXPECT_TRUE(pair.server.has_input());
  EXPECT_EQ(ERR_peek_error(), 0u) << "the program's own use of OpenSSL would take it for its own";
  for (const os::IoResult& io : {pair.server.write_some(random_bytes(10)), pair.server.read_some(got)}) {
    EXPECT_NE(os::describe(io).find("fail authentication"), std::string::npos) << os::describe(io);
  }
}

TEST(Tls, says_whether_input_waits_that_the_socket_does_not_show) {
  TlsPair pair;
  pair.join();
  pair.server.tls()->read_ahead();
  ASSERT_EQ(pair.client.write_some(random_bytes(100)).bytes, 100u);
  std::vector<std::byte> got(60);
  EXPECT_EQ(pair.server.read_some(got).bytes, 60u);
  EXPECT_TRUE(pair.server.has_input());
  EXPECT_EQ(pair.server.read_some(got).bytes, 40u);
  EXPECT_FALSE(pair.server.has_input());
  EXPECT_TRUE(pair.server.read_some(got).would_block);
  pair.client.reset();
  EXPECT_TRUE(pair.server.read_some(got).closed);
}

}  // namespace
}  // namespace qccl::secure
