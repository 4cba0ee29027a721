#include "device/going_streams.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "device/patience.h"

namespace qccl::device {
namespace {

struct Listed {
  int device = 0;
  Stream* stream = nullptr;  // null: gone
};

struct List {
  std::atomic<std::uint64_t> come{0};  // relaxed: a count
  std::mutex mutex;                    // guards what follows
  std::vector<Listed> streams;
};

// Never destroyed, because contexts may outlive main().
List& list() {
  static auto* const only = new List;
  return *only;
}

}  // namespace

GoingStream::GoingStream(const Device& device, Stream& stream) : stream_(stream) {
  const std::lock_guard lock(list().mutex);
  list().come.fetch_add(1, std::memory_order_relaxed);
  auto& streams = list().streams;
  auto place = std::ranges::find(streams, nullptr, &Listed::stream);
  if (place == streams.end()) place = streams.insert(place, Listed());
  *place = {device.index(), &stream};
}

GoingStream::~GoingStream() {
  const std::lock_guard lock(list().mutex);
  std::ranges::find(list().streams, &stream_, &Listed::stream)->stream = nullptr;
}

std::uint64_t GoingStream::come() { return list().come.load(std::memory_order_relaxed); }

GoingStreams::GoingStreams(const Device& device) : lock_(list().mutex) {
  const auto& streams = list().streams;
  for (std::size_t place = 0; place < streams.size(); ++place) {
    if (streams[place].stream == nullptr || streams[place].device != device.index()) continue;
    if (place < kMost) streams_[place] = streams[place].stream;
    are_all_ &= place < kMost;
  }
}

Result<std::unique_ptr<GoingTrial>> GoingTrial::make(const Device& device) {
  std::unique_ptr<GoingTrial> made(new GoingTrial(device));
  QCCL_ASSIGN(made->memory_, DeviceMemory::allocate(device, GoingStreams::kMost * kBytes));
  QCCL_ASSIGN(made->target_, PinnedMemory::allocate(device, GoingStreams::kMost * kBytes));
  return made;
}

Status GoingTrial::submit(std::size_t place, Stream& stream) {
  if (events_[place] == nullptr) {
    QCCL_ASSIGN(events_[place], Event::create(device_));
  }
  std::byte* const memory = memory_->data() + place * kBytes;
  QCCL_TRY(stream.fill(memory, std::byte{0}, kBytes));
  QCCL_TRY(stream.copy_to_host(target_->data() + place * kBytes, memory, kBytes));
  return events_[place]->record(stream.handle());
}

Result<bool> GoingTrial::run(const GoingStreams& streams, Nanoseconds patience) {
  if (!streams.are_all()) return false;
  for (std::size_t place = 0; place < GoingStreams::kMost; ++place) {
    if (streams.streams()[place] != nullptr) QCCL_TRY(submit(place, *streams.streams()[place]));
  }
  Patience left(patience);
  for (std::size_t place = 0; place < GoingStreams::kMost;) {
    bool happened = streams.streams()[place] == nullptr;
    if (!happened) {
      QCCL_ASSIGN(happened, events_[place]->has_happened());
    }
    if (happened) {
      ++place;
    } else if (left.is_over()) {
      return false;
    } else {
      std::this_thread::yield();
    }
  }
  return true;
}

}  // namespace qccl::device
