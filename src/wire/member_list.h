// What the members of a group tell each other while they agree on those that go on (engine/shrink/agreement.h): the
// payload of a `member_list` frame.
//
// | offset | bytes | field    | meaning                                                                          |
// |--------|-------|----------|----------------------------------------------------------------------------------|
// | 0      | 1     | kind     | MemberListKind                                                                   |
// | 1      | 1     | flags    | suspects: Presence, and 16 if any quorum will do; else 0                         |
// | 2      | 2     |          | zero                                                                             |
// | 4      | 8     | ballot   | round and proposer                                                               |
// | 12     | 8     | other    | promise: the accepted value's ballot, or 0; reject: the ballot that was promised |
// | 20     | 4     | count    | of members                                                                       |
// | 24     | count | members  | one byte each, by group rank                                                     |
//
// A byte of a suspects message is what the sender holds of that member: 0, or 1 + LossGrade; kLeftOut is added if the
// sender's call leaves the member out. In all other kinds it is 1 if the member goes on, else 0.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace qccl::wire {

enum class MemberListKind : std::uint8_t {
  suspects = 1,  // whom the sender holds for lost, and what its call of shrink() asks for
  prepare,       // asks for a promise to accept nothing of a lower ballot
  promise,       // that, and the value accepted so far, if there is one
  proposal,      // asks to accept the value
  accept,        // accepted
  reject,        // a higher ballot has a promise
  commit,        // the value was chosen
};

// Where the sender of a suspects message is.
enum class Presence : std::uint8_t {
  away,      // not in shrink()
  here,      // in shrink()
  resigned,  // its call has failed, because too few members are left with it
  closed,    // it has closed the group
};

struct Ballot {
  std::uint32_t round = 0;  // from 1; 0: none
  std::uint32_t proposer = 0;
  friend auto operator<=>(const Ballot&, const Ballot&) = default;
};

struct MemberList {
  static constexpr std::uint8_t kLeftOut = 0x80;

  MemberListKind kind = MemberListKind::suspects;
  Presence presence = Presence::away;
  bool any_quorum = false;
  Ballot ballot{};
  Ballot other{};                       // promise: round 0 if nothing was accepted
  std::vector<std::uint8_t> members{};  // empty if closed

  friend bool operator==(const MemberList&, const MemberList&) = default;
};

inline constexpr std::size_t kMemberListHeadBytes = 24;

std::vector<std::byte> encode_member_list(const MemberList& message);
// CorruptData unless it is a message of a group of `world` members.
Result<MemberList> decode_member_list(ConstBytes payload, std::size_t world);

}  // namespace qccl::wire
