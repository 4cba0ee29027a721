#include "engine/act/status_exchange.h"

#include <new>
#include <span>

namespace qccl::engine {

using wire::FrameKind;

void StatusAnswers::expect(WorldRank peer) {
  const std::lock_guard lock(mutex_);
  is_expected_[peer.index()] = 1;
  ++missing_;
}

void StatusAnswers::add(WorldRank peer, std::string text) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_expected_[peer.index()], 0) == 0) return;
  texts_[peer.index()] = std::move(text);
  if (--missing_ == 0) complete_.notify_all();
}

void StatusAnswers::wait(Nanoseconds patience) {
  std::unique_lock lock(mutex_);
  complete_.wait_for(lock, patience, [this] { return missing_ == 0; });
}

std::vector<std::string> StatusAnswers::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(texts_, std::vector<std::string>(texts_.size()));
}

void StatusExchange::ask(const std::shared_ptr<StatusAnswers>& answers) {
  owes_answer_.resize(world_);
  std::erase_if(open_, [](const auto& earlier) { return earlier.expired(); });
  open_.push_back(answers);
  for (WorldRank peer(0); peer.index() < world_; ++peer) {
    if (peer == rank_ || peers_[peer].loss()) continue;
    answers->expect(peer);
    if (owes_answer_[peer.index()] != 0) continue;
    control_.queue(peer, {.kind = FrameKind::status_query}, {});
    owes_answer_[peer.index()] = 1;
  }
}

void StatusExchange::on_query(WorldRank peer) {
  if (!describe_ || control_.holds(peer, FrameKind::status)) return;
  try {
    const std::string text = describe_();
    control_.queue(peer, {.kind = FrameKind::status}, text);
  } catch (const std::bad_alloc&) {  // the peer sees a rank that does not answer
  }
}

void StatusExchange::on_status(WorldRank peer, ConstBytes payload) {
  if (peer.index() < owes_answer_.size()) owes_answer_[peer.index()] = 0;
  try {
    for (const auto& each : open_) {
      if (const auto answers = each.lock()) answers->add(peer, std::string(as_text(payload)));
    }
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace qccl::engine
