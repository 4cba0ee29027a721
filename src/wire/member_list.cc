#include "wire/member_list.h"

#include <fmt/format.h>

#include <algorithm>

namespace qccl::wire {
namespace {

constexpr std::uint8_t kAnyQuorum = 0x10;
constexpr std::uint8_t kGrades = 3;

void store_ballot(std::byte* target, const Ballot& ballot) {
  store(target, ballot.round);
  store(target + 4, ballot.proposer);
}

Ballot load_ballot(const std::byte* source) { return {load<std::uint32_t>(source), load<std::uint32_t>(source + 4)}; }

bool is_known(const MemberList& message) {
  if (message.kind == MemberListKind::suspects) return message.presence <= Presence::closed;
  const bool has_flags = message.presence != Presence::away || message.any_quorum;
  return message.kind > MemberListKind::suspects && message.kind <= MemberListKind::commit && !has_flags;
}

bool has_valid_members(const MemberList& message) {
  const bool tells_suspects = message.kind == MemberListKind::suspects;
  return std::ranges::all_of(message.members, [tells_suspects](std::uint8_t member) {
    return tells_suspects ? (member & ~MemberList::kLeftOut) <= kGrades : member <= 1;
  });
}

}  // namespace

std::vector<std::byte> encode_member_list(const MemberList& message) {
  std::vector<std::byte> payload(kMemberListHeadBytes + message.members.size());
  std::byte* const target = payload.data();
  store(target, static_cast<std::uint8_t>(message.kind));
  store(target + 1,
        static_cast<std::uint8_t>(static_cast<unsigned>(message.presence) | (message.any_quorum ? kAnyQuorum : 0u)));
  store_ballot(target + 4, message.ballot);
  store_ballot(target + 12, message.other);
  store(target + 20, static_cast<std::uint32_t>(message.members.size()));
  std::ranges::transform(message.members, target + kMemberListHeadBytes,
                         [](std::uint8_t member) { return std::byte{member}; });
  return payload;
}

Result<MemberList> decode_member_list(ConstBytes payload, std::size_t world) {
  const auto corrupt = [](std::string what) { return Failure(ErrorKind::corrupt_data, std::move(what)); };
  if (payload.size() < kMemberListHeadBytes) {
    return corrupt(fmt::format("member list of {} bytes is shorter than its head", payload.size()));
  }
  MemberList message;
  message.kind = static_cast<MemberListKind>(load<std::uint8_t>(payload.data()));
  const auto flags = load<std::uint8_t>(payload.data() + 1);
  message.presence = static_cast<Presence>(flags & ~kAnyQuorum);
  message.any_quorum = (flags & kAnyQuorum) != 0;
  message.ballot = load_ballot(payload.data() + 4);
  message.other = load_ballot(payload.data() + 12);
  const auto count = load<std::uint32_t>(payload.data() + 20);
  const std::size_t expected = message.presence == Presence::closed ? 0 : world;
  if (count != expected || payload.size() != kMemberListHeadBytes + count ||
      load<std::uint16_t>(payload.data() + 2) != 0) {
    return corrupt(
        fmt::format("member list of {} bytes for {} members, in a group of {}", payload.size(), count, world));
  }
  for (const std::byte member : payload.subspan(kMemberListHeadBytes)) {
    message.members.push_back(std::to_integer<std::uint8_t>(member));
  }
  if (!is_known(message) || !has_valid_members(message) || message.ballot.proposer >= world) {
    return corrupt("member list with a value out of range");
  }
  return message;
}

}  // namespace qccl::wire
