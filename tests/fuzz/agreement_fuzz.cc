// The agreement of a group on those that go on: one member takes any messages and losses at any time, and has a verdict
// by its deadline.
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/shrink/agreement.h"
#include "fuzz/fuzz.h"
#include "wire/member_list.h"

namespace {

using namespace qccl;
using wire::MemberList;
using wire::MemberListKind;

MemberList draw_message(fuzz::Input& input, std::size_t world) {
  MemberList message;
  message.kind = static_cast<MemberListKind>(1 + input.byte() % 7);
  const bool tells_suspects = message.kind == MemberListKind::suspects;
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
    const MemberList message = draw_message(input_, world_);
    const auto payload = wire::encode_member_list(message);
    const auto decoded = wire::decode_member_list(payload, world_);
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
  Member(fuzz::Input(data, size)).run();
  return 0;
}
