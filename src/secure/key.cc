#include "secure/key.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <span>
#include <utility>

#include "base/options.h"
#include "os/secret_file.h"

namespace qccl::secure {
namespace {

constexpr const char* kInherited = "QCCL_KEY_FD";

const unsigned char* octets(ConstBytes bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

std::array<std::byte, Secret::kBytes> hmac(ConstBytes key, ConstBytes message) {
  std::array<std::byte, Secret::kBytes> tag;
  unsigned int bytes = 0;
  const auto* const made = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), octets(message),
                                  message.size(), reinterpret_cast<unsigned char*>(tag.data()), &bytes);
  if (made == nullptr) throw std::bad_alloc();  // the only failure of an algorithm that every OpenSSL 3 has
  return tag;
}

// Someone who sets a variable wants a key: an empty one must not start the job without.
Status check_not_empty() {
  for (const char* name : {"QCCL_KEY", "QCCL_KEY_FILE", kInherited}) {
    if (!is_empty_variable(name)) continue;
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("{} is set, but empty: give it its value, or unset it for a job without a key", name));
  }
  return {};
}

Result<std::shared_ptr<const Key>> shared(std::string text, const std::string& source) {
  QCCL_ASSIGN(Key key, Key::from_text(text, source));
  return std::shared_ptr<const Key>(std::make_shared<Key>(std::move(key)));
}

Result<std::shared_ptr<const Key>> from_reader(Result<std::string> read, const std::string& source) {
  if (read) return shared(std::move(*read), source);
  return Failure(ErrorKind::invalid_argument, fmt::format("{}: {}", source, read.error().message));
}

}  // namespace

void wipe(Bytes bytes) { ::OPENSSL_cleanse(bytes.data(), bytes.size()); }

void wipe(std::string& text) {
  text.resize(text.capacity());
  wipe(std::as_writable_bytes(std::span(text)));
  text.clear();
}

bool equal(ConstBytes one, ConstBytes other) {
  return one.size() == other.size() && ::CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

Result<Key> Key::from_text(std::string& text, const std::string& source) {
  std::string_view content = text;
  if (content.ends_with('\n')) content.remove_suffix(1);
  if (content.ends_with('\r')) content.remove_suffix(1);
  const std::size_t bytes = content.size();
  Key key;
  if (bytes >= kMinBytes && bytes <= kMaxBytes) {
    const ConstBytes copied = std::as_bytes(std::span(content));
    key.bytes_.assign(copied.begin(), copied.end());
  }
  wipe(text);
  if (!key.bytes_.empty()) return key;
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("{} has a key of {} bytes: it must have {} to {}, and they should be random; `qccl key` "
                             "makes one",
                             source, bytes, kMinBytes, kMaxBytes));
}

Secret Key::derive(std::string_view use) const {
  static constexpr std::string_view kSalt = "qccl";
  auto extracted = hmac(std::as_bytes(std::span(kSalt)), bytes_);
  std::string block(use);
  block += '\x01';
  auto expanded = hmac(extracted, std::as_bytes(std::span(block)));
  Secret secret;
  std::ranges::copy(expanded, secret.bytes().begin());
  wipe(extracted);
  wipe(expanded);
  return secret;
}

std::array<std::byte, Secret::kBytes> authenticate(const Secret& secret, ConstBytes message) {
  return hmac(secret.bytes(), message);
}

Result<std::shared_ptr<const Key>> find_key(const std::string& option) {
  if (!option.empty()) return shared(option, "InitOptions::key");
  QCCL_TRY(check_not_empty());
  auto text = environment("QCCL_KEY");
  const auto file = environment("QCCL_KEY_FILE");
  if (text && file) {
    wipe(*text);
    return Failure(ErrorKind::invalid_argument, "QCCL_KEY and QCCL_KEY_FILE are both set: unset one");
  }
  if (text) return shared(std::move(*text), "QCCL_KEY");
  if (file) return from_reader(os::read_secret_file(*file, Key::kMaxBytes + 2), key_source(""));
  if (const auto inherited = environment(kInherited)) {
    return from_reader(os::read_inherited_secret(*inherited, Key::kMaxBytes + 2), key_source(""));
  }
  return std::shared_ptr<const Key>();
}

std::string key_source(const std::string& option) {
  if (!option.empty()) return "InitOptions::key";
  if (auto text = environment("QCCL_KEY")) {
    wipe(*text);
    return "QCCL_KEY";
  }
  if (const auto file = environment("QCCL_KEY_FILE")) return fmt::format("QCCL_KEY_FILE ({})", *file);
  return environment(kInherited) ? "QCCL_KEY_FD (of qccl run)" : "";
}

Result<std::string> make_key_text() {
  std::array<std::byte, Secret::kBytes> random;
  if (::RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), static_cast<int>(random.size())) != 1) {
    return Failure(ErrorKind::resource_exhausted, "the system has no random bytes for a key");
  }
  std::string text;
  text.reserve(2 * random.size() + 1);  // with a line's end, it does not move and leave a copy behind
  for (const std::byte byte : random) fmt::format_to(std::back_inserter(text), "{:02x}", static_cast<unsigned>(byte));
  wipe(random);
  return text;
}

}  // namespace qccl::secure
