#include "device_engine/staged/device_jobs.h"

#include <algorithm>
#include <span>
#include <utility>

namespace qccl::engine {

using kernels::device::entry;
using kernels::device::PayloadFormat;
using kernels::device::PayloadKind;
using kernels::device::SliceJob;

namespace {

// A few of the device's processors copy faster than its link to the host, and leave the rest to the program. The fewer
// bits an element has on that link, the more elements it carries at a time (docs/decisions/0017-device-kernels.md).
constexpr std::uint32_t kFewestBlocks = 16;
constexpr std::uint32_t kMostBlocks = 64;
constexpr std::uint32_t kBlocksOfOneBit = 240;

std::uint32_t blocks_for(const PayloadFormat& format) {
  if (format.kind < PayloadKind::minmax) return kFewestBlocks;
  return std::clamp(kBlocksOfOneBit / std::max<std::uint32_t>(format.bits, 1), kFewestBlocks, kMostBlocks);
}

}  // namespace

DeviceJobs::Ticket DeviceJobs::add(const SliceJob& job, bool follows) {
  waiting_.push_back(job);
  follows_.push_back(follows);
  return ++added_;
}

Status DeviceJobs::submit() {
  while (!waiting_.empty() && under_way_ < kMostBatches) {
    Batch& batch = batches_[(first_ + under_way_) % kMostBatches];
    if (batch.event == nullptr) {
      QCCL_ASSIGN(batch.event, device::Event::create(*launcher_.device));
    }
    const std::size_t count = std::min(waiting_.size(), kMostJobs);
    Status launched = launch(batch, count);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    follows_.erase(follows_.begin(), follows_.begin() + static_cast<std::ptrdiff_t>(count));
    launched_ += count;
    batch.last = launched_;
    ++under_way_;
    if (!launched.ok()) return launched;
  }
  return {};
}

// One launch for all jobs in a row that have the same program and do not follow one another. The event is recorded even
// if a launch fails, since others may be under way, and once more if that fails.
Status DeviceJobs::launch(Batch& batch, std::size_t count) {
  const std::span<const SliceJob> jobs = waiting_;
  Status launched;
  for (std::size_t begin = 0, end = 0; begin < count && launched.ok(); begin = end) {
    while (++end < count && !follows_[end] && entry(jobs[end]) == entry(jobs[begin])) {
    }
    launched = launcher_.kernels->launch(*launcher_.stream, entry(jobs[begin]), jobs.subspan(begin, end - begin),
                                         blocks_for(jobs[begin].format));
  }
  Status recorded = batch.event->record(launcher_.stream->handle());
  if (!recorded.ok()) static_cast<void>(batch.event->record(launcher_.stream->handle()));
  return launched.ok() ? std::move(recorded) : std::move(launched);
}

Result<bool> DeviceJobs::look() {
  bool any = false;
  while (under_way_ > 0) {
    QCCL_ASSIGN(const bool happened, batches_[first_].event->has_happened());
    if (!happened) break;
    ended_ = batches_[first_].last;
    first_ = (first_ + 1) % kMostBatches;
    --under_way_;
    any = true;
  }
  return any;
}

// A device that fails twice has ended what was under way as well.
bool DeviceJobs::abandon() {
  waiting_.clear();
  follows_.clear();
  added_ = launched_;
  if (!look().ok() && !look().ok()) {
    under_way_ = 0;
    ended_ = added_;
  }
  return is_idle();
}

}  // namespace qccl::engine
