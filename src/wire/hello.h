// The handshake: the first bytes on a connection between two ranks. The dialler sends a Hello; the acceptor checks it
// and answers with its own. Anything else comes from a stranger and is dropped.
//
// | offset | bytes | field    | meaning                                                |
// |--------|-------|----------|--------------------------------------------------------|
// | 0      | 8     | magic    | "QCCLHELO"                                             |
// | 8      | 4     | version  | kWireVersion, must be equal                            |
// | 12     | 4     | rank     | of the sender                                          |
// | 16     | 4     | target   | rank that is meant                                     |
// | 20     | 4     | world    | must be equal                                          |
// | 24     | 8     | job      | digest of the job's name and nonce, must be equal      |
// | 32     | 24    | reserved | zero; room for authentication                          |
// | 56     | 8     | checksum | XXH3-64 of bytes 0..55                                 |
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/result.h"

namespace qccl::wire {

inline constexpr std::size_t kHelloBytes = 64;
inline constexpr std::uint32_t kWireVersion = 1;

struct Hello {
  std::uint32_t version = kWireVersion;
  std::uint32_t rank = 0;
  std::uint32_t target = 0;
  std::uint32_t world = 0;
  std::uint64_t job = 0;
};

void encode_hello(const Hello& hello, std::byte* target);
// CorruptData if these bytes are no Hello (magic, checksum, reserved bytes). check_hello() says whether it matches.
Result<Hello> decode_hello(const std::byte* source);
// Unsupported or Misuse, with the reason, if `got` does not belong to the same job as `own`.
Status check_hello(const Hello& own, const Hello& got);

}  // namespace qccl::wire
