#include "bootstrap/mesh/pair_secrets.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "base/text.h"

namespace qccl::bootstrap {
namespace {

constexpr std::string_view kBeginning = "qccl mesh ";

}  // namespace

std::string encode_identity(const PairIdentity& identity) {
  return fmt::format("{}{:016x} {} {} {}", kBeginning, identity.job, identity.from, identity.to, identity.index);
}

Result<PairIdentity> decode_identity(std::string_view text) {
  if (!text.starts_with(kBeginning)) return Failure(ErrorKind::corrupt_data, "gives no rank's identity");
  const auto fields = split(text.substr(kBeginning.size()), ' ');
  PairIdentity identity;
  if (fields.size() == 4) {
    std::from_chars(fields[0].data(), fields[0].data() + fields[0].size(), identity.job, 16);
    identity.from = parse_number<std::uint32_t>(fields[1]).value_or(0);
    identity.to = parse_number<std::uint32_t>(fields[2]).value_or(0);
    identity.index = parse_number<std::uint16_t>(fields[3]).value_or(0);
  }
  if (encode_identity(identity) == text) return identity;
  return Failure(ErrorKind::corrupt_data, "gives no rank's identity");
}

secure::Credentials PairSecrets::credentials(const PairIdentity& own) const {
  std::string identity = encode_identity(own);
  secure::Secret secret = protection_.key->derive(fmt::format("{} of {}", identity, attempt_));
  return {std::move(identity), std::move(secret)};
}

Result<secure::Secret> PairSecrets::find(std::string_view identity, std::uint64_t job, std::uint32_t rank) const {
  QCCL_ASSIGN(const auto peer, decode_identity(identity));
  if (peer.job != job)
    return Failure(ErrorKind::misuse, "belongs to another job, or another attempt to start this one");
  if (peer.to != rank || peer.from <= rank) {
    return Failure(ErrorKind::misuse, fmt::format("is rank {} and means rank {}", peer.from, peer.to));
  }
  return std::move(credentials(peer).secret);
}

}  // namespace qccl::bootstrap
