#include "engine/staged/device_jobs.h"

#include <algorithm>
#include <new>
#include <utility>

namespace qccl::engine {

using kernels::device::entry;
using kernels::device::SliceJob;

DeviceJobs::Ticket DeviceJobs::add(const SliceJob& job, bool follows) {
  waiting_.push_back({job, follows});
  return ++added_;
}

Status DeviceJobs::submit() {
  while (!waiting_.empty() && under_way_ < kMostBatches) {
    Batch& batch = batches_[(first_ + under_way_) % kMostBatches];
    QCCL_TRY(prepare(batch));
    const std::size_t count = std::min(waiting_.size(), kMostJobs);
    auto* const jobs = reinterpret_cast<SliceJob*>(batch.jobs->data());
    for (std::size_t i = 0; i < count; ++i) new (jobs + i) SliceJob(waiting_[i].job);
    Status launched = launch(batch, count);
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    launched_ += count;
    batch.last = launched_;
    ++under_way_;
    if (!launched.ok()) return launched;
  }
  return {};
}

Status DeviceJobs::prepare(Batch& batch) const {
  if (batch.event != nullptr) return {};
  QCCL_ASSIGN(batch.jobs, device::PinnedMemory::allocate(*launcher_.device, kMostJobs * sizeof(SliceJob)));
  QCCL_ASSIGN(batch.event, device::Event::create(*launcher_.device));
  return {};
}

// One launch for all jobs in a row that have the same program and do not follow one another. The event is recorded even
// if a launch fails, since others may be under way, and once more if that fails.
Status DeviceJobs::launch(Batch& batch, std::size_t count) {
  const auto* const jobs = reinterpret_cast<const SliceJob*>(batch.jobs->data());
  Status launched;
  for (std::size_t begin = 0, end = 0; begin < count && launched.ok(); begin = end) {
    while (++end < count && !waiting_[end].follows && entry(jobs[end]) == entry(jobs[begin])) {
    }
    launched = launcher_.kernels->launch(*launcher_.stream, entry(jobs[begin]), jobs + begin,
                                         static_cast<std::uint32_t>(end - begin), kBlocks);
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
  added_ = launched_;
  if (!look().ok() && !look().ok()) {
    under_way_ = 0;
    ended_ = added_;
  }
  return is_idle();
}

}  // namespace qccl::engine
