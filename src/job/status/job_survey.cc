#include "job/status/job_survey.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <utility>

#include "engine/progress/progress_driver.h"
#include "observe/status_text.h"

namespace qccl::comm {
namespace {

RankStatus report_of(const engine::Engine& engine, const RankStatus& self) {
  RankStatus status = self;
  engine.report(status);
  return status;
}

// Why a peer gave no answer, as this rank sees it.
std::string absence_of(const engine::Engine& engine, WorldRank peer) {
  const engine::PeerMonitor::Peer& known = engine.peers()[peer];
  if (known.lost) return known.what;
  if (known.departed) return "left the job";
  const Nanoseconds silence = engine.peers().silence(peer, engine.clock().look());
  return fmt::format("does not answer; it was last heard of {:.1f} s ago",
                     std::chrono::duration<double>(silence).count());
}

}  // namespace

JobSurvey::JobSurvey(engine::ProgressDriver& driver, RankStatus self) : driver_(driver), self_(std::move(self)) {
  driver_.with_engine([this](engine::Engine& engine) {
    engine.status().describe_with(
        [this, &engine] { return internal::encode_status(report_of(engine, self_), internal::kMostPeerStatusBytes); });
  });
}

JobSurvey::~JobSurvey() {
  driver_.with_engine([](engine::Engine& engine) { engine.status().describe_with({}); });
}

RankStatus JobSurvey::own() {
  RankStatus status;
  driver_.with_engine([&](engine::Engine& engine) { status = report_of(engine, self_); });
  return status;
}

std::vector<RankStatus> JobSurvey::all(Nanoseconds patience) {
  const auto answers = std::make_shared<engine::StatusAnswers>(static_cast<std::size_t>(self_.world));
  driver_.with_engine([&](engine::Engine& engine) { engine.status().ask(answers); });
  answers->wait(patience);
  const std::vector<std::string> texts = answers->take();
  std::vector<RankStatus> ranks;
  for (int rank = 0; rank < self_.world; ++rank) {
    RankStatus& status = ranks.emplace_back();
    const std::string& text = texts[static_cast<std::size_t>(rank)];
    const bool is_read = rank == self_.rank || (!text.empty() && internal::decode_status(text, status).ok());
    if (!is_read) status = {};
    status.rank = rank;  // as its connection says
    status.world = self_.world;
    status.job = self_.job;
    status.answered = is_read;
    status.state = '?';
  }
  driver_.with_engine([&](engine::Engine& engine) {
    for (RankStatus& status : ranks) {
      if (status.rank == self_.rank) {
        status = report_of(engine, self_);
      } else if (!status.answered) {
        status.absence = absence_of(engine, WorldRank(status.rank));
      }
    }
  });
  return ranks;
}

}  // namespace qccl::comm
