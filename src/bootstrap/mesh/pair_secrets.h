// What two ranks of a job prove to each other on a TCP connection if the job has a key.
//
// The dialler is TLS's client. Its identity says job, both ranks and the connection's number:
//
//   "qccl mesh JOB FROM TO INDEX"      JOB: the digest of the handshake's Hello, 16 hexadecimal digits
//
// The secret is derived from the key and from this, and the job's name, restart, generation and nonce: it is good for
// no other job, pair, direction or attempt to start.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "secure/key.h"
#include "secure/tls.h"

namespace qccl::bootstrap {

struct PairIdentity {
  std::uint64_t job = 0;
  std::uint32_t from = 0;  // the dialler's rank
  std::uint32_t to = 0;
  std::uint16_t index = 0;  // of the connection

  friend bool operator==(const PairIdentity&, const PairIdentity&) = default;
};

std::string encode_identity(const PairIdentity& identity);
// CorruptData if the text is no identity as encode_identity() writes it.
Result<PairIdentity> decode_identity(std::string_view text);

class PairSecrets {
 public:
  // `attempt`: names the job and the attempt to start it, the same on all ranks.
  PairSecrets(const secure::Protection& protection, std::string attempt)
      : protection_(protection), attempt_(std::move(attempt)) {}

  bool has_key() const { return protection_.key != nullptr; }
  bool encrypts() const { return has_key() && protection_.encrypts; }

  secure::Credentials credentials(const PairIdentity& own) const;
  // For the acceptor: Misuse, unless the identity dials `rank` in this `job`.
  Result<secure::Secret> find(std::string_view identity, std::uint64_t job, std::uint32_t rank) const;

 private:
  const secure::Protection protection_;
  const std::string attempt_;
};

}  // namespace qccl::bootstrap
