// The wire format of torch's TCPStore, as far as QCCL uses it: the client works with torchrun's store, and the server
// accepts the same client.
//
// Integers are little-endian; a string is u64 length + bytes; every key begins with "/".
//
// | query       | byte | fields              | answer                                              |
// |-------------|------|---------------------|-----------------------------------------------------|
// | validate    | 0    | u32 0x3C85F7CE      | none; must be a connection's first, and only once   |
// | set         | 1    | key, value          | none                                                |
// | get         | 3    | key                 | string; only for keys that exist: wait first        |
// | add         | 4    | key, i64            | i64, the sum; kept as a decimal string              |
// | check       | 5    | u64 count, keys     | u8: 0 all exist, 1 not                              |
// | wait        | 6    | u64 count, keys     | u8: 0 once all exist; 2 (ours only) the server ends |
// | cancel_wait | 12   | none                | u8: 1, always; the wait's own answer may come first |
// | ping        | 13   | u32                 | the same u32                                        |
// | await       | 64   | key                 | u8 like wait's; after 0 the string (ours only)      |
// | will        | 65   | keys, values        | none; sets them when the connection ends (ours)     |
//
// If the job has a key, all of this goes through TLS (store_secrets.h), except on unix sockets.
//
// Unlike torch's, our server makes no key when 0 is added to a missing one.
//
// A server that knows await and keeps the first value of every key has the key kServesAwait; one that knows wills has
// kServesWills. A will's keys and values are two lists, each with a u64 count. It replaces an earlier one, and leaves
// keys that exist as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"

namespace qccl::bootstrap {

enum class Query : std::uint8_t {
  validate = 0,
  set = 1,
  get = 3,
  add = 4,
  check = 5,
  wait = 6,
  cancel_wait = 12,
  ping = 13,
  await = 64,
  will = 65,
};

// Without torch's leading "/".
inline constexpr const char* kServesAwait = "qccl/serves-await";
inline constexpr const char* kServesWills = "qccl/serves-wills";

inline constexpr std::uint32_t kStoreMagic = 0x3C85F7CE;
inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kWaitCancelled = 1;
inline constexpr std::uint8_t kServerEnds = 2;
// Ours only, in place of the first answer: the server has a key and this client does not, or the other way around.
inline constexpr std::uint8_t kKeysDiffer = 3;

// Limits of the server. Nothing longer is ever buffered.
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kMaxValueBytes = 1024 * 1024;
inline constexpr std::size_t kMaxKeysPerQuery = 64;
inline constexpr std::size_t kMaxWillKeys = 3;
inline constexpr std::size_t kMaxWillValueBytes = 1024;

struct StoreRequest {
  Query query = Query::validate;
  std::vector<std::string> keys{};    // check, wait and will have any number, others at most one
  std::string value{};                // set
  std::vector<std::string> values{};  // will: as many as keys
  std::int64_t number = 0;            // add: the delta; validate and ping: the u32
};

// A key in torch's form.
std::string wire_key(const std::string& key);

std::string encode_request(const StoreRequest& request);

struct ParsedRequest {
  std::size_t bytes = 0;  // of `source` that it takes; 0: incomplete, call again with more
  StoreRequest request;
};
// The first request in `source`. CorruptData if no continuation could make it one.
Result<ParsedRequest> parse_request(std::string_view source);

// Fields of the messages that ranks exchange before they are connected: little-endian integers, strings as u64 length +
// bytes, lists of strings as u64 count + strings. ByteWriter and ByteReader have the same members, so that a message
// lists its fields once, in a visit() for both.
class ByteWriter {
 public:
  // As a Wire, if that is another type.
  template <class Wire = void, class T>
  void integer(const T& value) {
    const auto wire = static_cast<std::conditional_t<std::is_void_v<Wire>, T, Wire>>(value);
    bytes_.append(reinterpret_cast<const char*>(&wire), sizeof(wire));
  }
  // Limits are for readers: the writer's caller keeps to them.
  void string(std::string_view text, std::size_t /*limit*/) {
    integer<std::uint64_t>(text.size());
    bytes_.append(text);
  }
  void strings(const std::vector<std::string>& texts, std::size_t /*count_limit*/, std::size_t limit) {
    integer<std::uint64_t>(texts.size());
    for (const std::string& text : texts) string(text, limit);
  }
  // A list that always has one string: without a count.
  void one_string(const std::vector<std::string>& texts, std::size_t limit) { string(texts[0], limit); }

  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Takes fields off the front of a stranger's bytes. After the first error every later field is empty: check at the end.
class ByteReader {
 public:
  explicit ByteReader(std::string_view source) : source_(source) {}

  template <class Wire = void, class T>
  void integer(T& value) {
    std::conditional_t<std::is_void_v<Wire>, T, Wire> wire{};
    const std::string_view field = take(sizeof(wire));
    if (field.size() == sizeof(wire)) std::memcpy(&wire, field.data(), sizeof(wire));
    value = static_cast<T>(wire);
  }
  // A string longer than `limit` is malformed, whether or not its bytes are there.
  void string(std::string& text, std::size_t limit) { text = take(length(limit)); }
  // So is a list of more than `count_limit`.
  void strings(std::vector<std::string>& texts, std::size_t count_limit, std::size_t limit) {
    const std::size_t count = length(count_limit);
    while (good() && texts.size() < count) string(texts.emplace_back(), limit);
  }
  void one_string(std::vector<std::string>& texts, std::size_t limit) { string(texts.emplace_back(), limit); }

  // The source ended too early: with more bytes it may become valid.
  bool incomplete() const { return incomplete_; }
  // No further bytes can make it valid.
  bool malformed() const { return malformed_; }
  bool good() const { return !incomplete_ && !malformed_; }
  // The whole source was read, without errors.
  bool finished() const { return good() && taken_ == source_.size(); }
  std::size_t taken() const { return taken_; }

 private:
  std::size_t length(std::size_t limit) {
    std::uint64_t value = 0;
    integer(value);
    malformed_ |= value > limit;
    return good() ? static_cast<std::size_t>(value) : 0;
  }
  std::string_view take(std::size_t bytes) {
    if (!good()) return {};
    incomplete_ = bytes > source_.size() - taken_;
    if (incomplete_) return {};
    taken_ += bytes;
    return source_.substr(taken_ - bytes, bytes);
  }

  std::string_view source_;
  std::size_t taken_ = 0;
  bool incomplete_ = false;
  bool malformed_ = false;
};

}  // namespace qccl::bootstrap
