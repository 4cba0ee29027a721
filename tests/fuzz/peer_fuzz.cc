// What ranks read from each other once they are connected, and tools from ranks: frame headers, envelopes, messages of
// the agreement on those that go on, answers about a rank's status. Any bytes are refused, or they are what the encoder
// writes for the decoded value. An agreement takes any messages, and its member has a verdict by its deadline.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "comm/inspect/status_server.h"
#include "engine/membership/agreement.h"
#include "fuzz/fuzz.h"
#include "wire/frame.h"
#include "wire/membership.h"

namespace {

using namespace qccl;
using wire::MembershipKind;
using wire::MembershipMessage;

// With the right magic and checksum, so that the fields are reached.
void decode_header(ConstBytes bytes) {
  std::array<std::byte, wire::kHeaderBytes> header{}, again{};
  wire::encode_header({}, header.data());
  const std::size_t count = std::min(bytes.size(), header.size() - 8);
  if (count > 0) std::memcpy(header.data() + 4, bytes.data(), count);
  wire::set_frame_number(header.data(), 7);
  const auto decoded = wire::decode_header(header.data());
  if (!decoded) return;
  fuzz::require(decoded.value().payload_bytes <= wire::kPayloadLimit, "a payload is bounded");
  wire::encode_header(decoded.value(), again.data());
  fuzz::require(again == header, "a header has one spelling");
}

void decode_envelope(ConstBytes bytes) {
  const auto decoded = wire::decode_envelope(bytes);
  if (!decoded) return;
  std::array<std::byte, wire::kEnvelopeBytes> again{};
  wire::encode_envelope(decoded.value(), again.data());
  fuzz::require(wire::decode_envelope(again).ok(), "an envelope reads back");
}

void decode_status(std::string_view text) {
  RankStatus status;
  if (!comm::decode_status(std::string(text), status).ok()) return;
  RankStatus again;
  fuzz::require(comm::decode_status(comm::encode_status(status), again).ok(), "a status reads back");
}

void decode_message(ConstBytes payload, std::size_t world) {
  const auto decoded = wire::decode_membership(payload, world);
  if (!decoded) return;
  fuzz::require(decoded.value().members.size() == world || decoded.value().members.empty(),
                "as many members as the group has");
  fuzz::require(std::ranges::equal(wire::encode_membership(decoded.value()), payload), "a message has one spelling");
}

MembershipMessage draw_message(fuzz::Input& input, std::size_t world) {
  MembershipMessage message;
  message.kind = static_cast<MembershipKind>(1 + input.byte() % 7);
  const bool tells_suspects = message.kind == MembershipKind::suspects;
  const std::uint8_t flags = input.byte();
  if (tells_suspects) message.presence = static_cast<wire::Presence>(flags % 4);
  message.any_quorum = tells_suspects && flags > 200;
  message.ballot = {input.byte(), input.byte() % static_cast<std::uint32_t>(world)};
  message.other = {input.byte(), input.byte() % static_cast<std::uint32_t>(world)};
  const std::size_t members = message.presence == wire::Presence::closed ? 0 : world;
  for (std::size_t member = 0; member < members; ++member) {
    const std::uint8_t held = input.byte();
    message.members.push_back(static_cast<std::uint8_t>(tells_suspects ? (held & 0x80U) | held % 4U : held % 2U));
  }
  return message;
}

// One member, to which the others send messages drawn from the input.
class Member {
 public:
  explicit Member(fuzz::Input input) : input_(input), world_(1 + input_.byte() % 6), self_(input_.byte() % world_) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < world_; ++rank) ranks.push_back(static_cast<int>(rank));
    agreement_.emplace(ranks, GroupRank(static_cast<int>(self_)), std::chrono::milliseconds(1));
  }

  void run() {
    const std::uint8_t calls_at = input_.byte() % 16;
    const TimePoint end = now_ + std::chrono::seconds(10);
    bool has_called = false;
    for (int event = 0; !input_.rest().empty() || !has_called; ++event) {
      if (event == calls_at) {
        engine::ShrinkTerms terms{engine::MemberSet(world_, 0), input_.byte() > 200};
        agreement_->enter(terms, engine::Losses(world_), end, now_);
        has_called = true;
      }
      receive_or_lose();
      drain();
    }
    now_ = end;
    for (int turn = 0; turn < 4; ++turn) {
      agreement_->advance(now_);
      drain();
      now_ += std::chrono::seconds(1);
    }
    fuzz::require(has_verdict_, "a member that calls has a verdict by its deadline");
  }

 private:
  void receive_or_lose() {
    const std::uint8_t what = input_.byte();
    const GroupRank from(static_cast<int>(input_.byte() % world_));
    if (from.index() == self_) {
      now_ += std::chrono::microseconds(what * 10);
      return agreement_->advance(now_);
    }
    if (what % 8 == 0) return agreement_->lose(from, static_cast<LossGrade>(what / 8 % 3), now_);
    const MembershipMessage message = draw_message(input_, world_);
    const auto payload = wire::encode_membership(message);
    const auto decoded = wire::decode_membership(payload, world_);
    fuzz::require(decoded.ok() && decoded.value() == message, "a message reads back");
    agreement_->receive(from, decoded.value(), now_);
  }

  void drain() {
    while (agreement_->outbox().front() != nullptr) agreement_->outbox().pop();
    const auto verdict = agreement_->take_verdict();
    if (!verdict) return;
    has_verdict_ = true;
    if (!*verdict) return;
    fuzz::require(verdict->value().size() == world_ && verdict->value()[self_] == 1, "who goes on is in its group");
  }

  fuzz::Input input_;
  const std::size_t world_;
  const std::size_t self_;
  std::optional<engine::Agreement> agreement_;
  TimePoint now_ = TimePoint{} + std::chrono::seconds(1);
  bool has_verdict_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  decode_header(std::as_bytes(bytes));
  decode_envelope(std::as_bytes(bytes));
  decode_message(std::as_bytes(bytes), 1 + size % 7);
  decode_status({reinterpret_cast<const char*>(data), size});
  Member(fuzz::Input(data, size)).run();
  return 0;
}
