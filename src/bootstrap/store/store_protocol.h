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
};

inline constexpr std::uint32_t kStoreMagic = 0x3C85F7CE;
inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kWaitCancelled = 1;
inline constexpr std::uint8_t kServerEnds = 2;

// Limits of the server. Nothing longer is ever buffered.
inline constexpr std::size_t kMaxKeyBytes = 4096;
inline constexpr std::size_t kMaxValueBytes = 1024 * 1024;
inline constexpr std::size_t kMaxKeysPerQuery = 64;

struct StoreRequest {
  Query query = Query::validate;
  std::vector<std::string> keys{};  // set, get and add have one; check and wait any number
  std::string value{};              // set
  std::int64_t number = 0;          // add: the delta; validate and ping: the u32
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
