// The key that the ranks of a job share: where it comes from, and what is derived from it.
//
// A key is any 16 to 4096 bytes; they should be random (`qccl key` makes such a file). It is never used itself: every
// use (a connection, the cards in a store) has a secret of its own, HKDF-SHA256 of the key and of a text that names the
// use, the job and the ranks. Key and secrets are wiped when they go, compared in constant time, and never printed.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace qccl::secure {

// Overwrites the bytes, also where a compiler would see no use in it.
void wipe(Bytes bytes);
void wipe(std::string& text);

// True if both have the same bytes; takes the same time wherever they differ.
bool equal(ConstBytes one, ConstBytes other);

// 32 bytes derived from a key. Wiped at the end; moves wipe their source.
class Secret {
 public:
  static constexpr std::size_t kBytes = 32;

  Secret() = default;
  ~Secret() { wipe(bytes_); }
  Secret(Secret&& other) noexcept : bytes_(other.bytes_) { wipe(other.bytes_); }
  Secret& operator=(Secret&& other) noexcept {
    bytes_ = other.bytes_;
    if (this != &other) wipe(other.bytes_);
    return *this;
  }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  ConstBytes bytes() const { return bytes_; }
  Bytes bytes() { return bytes_; }

 private:
  std::array<std::byte, kBytes> bytes_{};
};

class Key {
 public:
  static constexpr std::size_t kMinBytes = 16;
  static constexpr std::size_t kMaxBytes = 4096;

  // Takes the text and wipes it. One line end after it does not count. `source` is for messages: "QCCL_KEY_FILE
  // (/run/key)". InvalidArgument, without the text, if it is too short or too long.
  static Result<Key> from_text(std::string& text, const std::string& source);

  ~Key() { wipe(bytes_); }
  Key(Key&&) noexcept = default;
  Key& operator=(Key&&) = delete;
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;

  // HKDF-SHA256 (RFC 5869) with salt "qccl" and `use` as info. Different uses give independent secrets.
  Secret derive(std::string_view use) const;

 private:
  Key() = default;
  std::vector<std::byte> bytes_;
};

// HMAC-SHA256 of `message`.
std::array<std::byte, Secret::kBytes> authenticate(const Secret& secret, ConstBytes message);

// What protects a job.
struct Protection {
  std::shared_ptr<const Key> key{};  // null: nothing does
  // Without: connections are authenticated when they are made, and carry plain bytes after that.
  bool encrypts = true;
};

// Where a key may come from, in this order: `option` (InitOptions::key; empty: none), QCCL_KEY, QCCL_KEY_FILE,
// QCCL_KEY_FD. Null if none is set. InvalidArgument if two of the variables that people set are, one is set but empty,
// or the source has no key. Thread-safe.
Result<std::shared_ptr<const Key>> find_key(const std::string& option);
// Where find_key() would look, for people: "QCCL_KEY_FILE (/run/key)", or "" if nothing is set.
std::string key_source(const std::string& option);

// 32 random bytes as 64 hexadecimal digits.
Result<std::string> make_key_text();

}  // namespace qccl::secure
