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
#include <string>
#include <string_view>
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

}  // namespace qccl::bootstrap
