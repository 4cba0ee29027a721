#include "device/gates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "device/patience.h"

namespace qccl::device {
namespace {

constexpr std::size_t kMostClosed = 1024;
// How long the trial waits for work that gates must not hold up.
constexpr Nanoseconds kPatience = std::chrono::seconds(1);
// The same for one stream, whose program waits for it: some hundred times what the work takes.
constexpr Nanoseconds kPatienceForStream = std::chrono::milliseconds(250);
constexpr std::size_t kMostFailed = 8;
constexpr std::size_t kMostKnown = 4096;  // streams; a program may make new ones for ever
// How long the trial works beside a thread that frees memory.
constexpr Nanoseconds kBesideFreeing = std::chrono::milliseconds(10);
constexpr std::size_t kTrialBytes = 4096;
// Streams that the trial makes beside the one with a gate. Other threads make streams meanwhile, so that one of them
// may share its queue although the device has more.
constexpr std::size_t kBeside = 4;

// Opens all gates once kPatience has passed, by a thread that calls nothing of the driver.
class LateOpener {
 public:
  explicit LateOpener(Gates& gates)
      : gates_(gates), thread_([this](const std::stop_token& stop) { open_late(stop); }) {}
  ~LateOpener() { open(); }
  LateOpener(const LateOpener&) = delete;
  LateOpener& operator=(const LateOpener&) = delete;

  void open() {
    thread_.request_stop();
    gates_.open_all();
  }
  bool was_late() const { return was_late_.load(std::memory_order_relaxed); }

 private:
  void open_late(const std::stop_token& stop) {
    Patience patience(kPatience);
    while (!patience.is_over()) {
      if (stop.stop_requested()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    was_late_ = true;
    gates_.open_all();
  }

  Gates& gates_;
  std::atomic<bool> was_late_{false};
  std::jthread thread_;
};

Failure held_up(const char* what) {
  return Failure(ErrorKind::unsupported, fmt::format("beside a stream that waits, {}", what));
}

}  // namespace

// What try_out() uses. The memory stays: to free it would wait for the program's streams, which may wait for the
// program.
struct Gates::Trial {
  struct Lane {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Event> event;
  };

  static Result<std::unique_ptr<Trial>> make(const Device& device) {
    auto made = std::make_unique<Trial>();
    QCCL_ASSIGN(made->gated, Stream::create(device));
    for (Lane& lane : made->lanes) {
      QCCL_ASSIGN(lane.stream, Stream::create(device));
      QCCL_ASSIGN(lane.event, Event::create(device));
    }
    QCCL_ASSIGN(made->event, Event::create(device));
    QCCL_ASSIGN(made->spare, DeviceMemory::allocate(device, kTrialBytes));
    QCCL_ASSIGN(made->memory, DeviceMemory::allocate(device, kTrialBytes));
    QCCL_ASSIGN(made->target, PinnedMemory::allocate(device, kTrialBytes));
    return made;
  }

  // A kernel and a copy on each of these streams, which have no gate. True once one of them has ended, which is the
  // first lane from then on; false if none has when the gates are opened.
  Result<bool> work(std::span<Lane> tried, const LateOpener& opener) {
    for (const Lane& lane : tried) QCCL_TRY(submit(lane));
    while (true) {
      const bool was_late = opener.was_late();
      for (Lane& lane : tried) {
        QCCL_ASSIGN(const bool happened, lane.event->has_happened());
        if (happened && !was_late) std::swap(lanes[0], lane);
        if (happened || was_late) return happened && !was_late;
      }
      std::this_thread::yield();
    }
  }

  Status submit(const Lane& lane) {
    QCCL_TRY(lane.stream->fill(memory->data(), std::byte{0}, kTrialBytes));
    QCCL_TRY(lane.stream->copy_to_host(target->data(), memory->data(), kTrialBytes));
    return lane.event->record(lane.stream->handle());
  }

  // Works for a while beside a thread that frees memory, which may wait for all streams.
  Result<bool> work_beside_freeing(const LateOpener& opener) {
    freeing = std::jthread([this] {
      frees = true;
      spare.reset();
    });
    const SteadyClock clock;
    TimePoint end = kForever;
    Result<bool> goes_on = true;
    while (goes_on.ok() && *goes_on && clock.now() < end) {
      if (end == kForever && frees) end = clock.now() + kBesideFreeing;
      goes_on = work({lanes.data(), 1}, opener);
    }
    return goes_on;
  }

  // Whether the stream goes on whose gate was opened.
  Status await_gated() {
    QCCL_TRY(event->record(gated->handle()));
    Patience patience(kPatience);
    while (true) {
      QCCL_ASSIGN(const bool happened, event->has_happened());
      if (happened) return {};
      if (patience.is_over()) return held_up("the host let it go on, and a second later it still waited");
      std::this_thread::yield();
    }
  }

  std::unique_ptr<Stream> gated;
  std::array<Lane, kBeside> lanes;  // made next, and so in the next queues
  std::unique_ptr<Event> event;
  std::unique_ptr<DeviceMemory> spare;  // freed while the gate is closed
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<PinnedMemory> target;
  std::atomic<bool> frees{false};
  std::jthread freeing;
};

Result<std::unique_ptr<Gates>> Gates::open(const Device& device) {
  QCCL_ASSIGN(auto memory, PinnedMemory::allocate(device, kMostClosed * sizeof(std::uint32_t)));
  QCCL_ASSIGN(auto trial, GoingTrial::make(device));
  return std::unique_ptr<Gates>(new Gates(device, std::move(memory), std::move(trial)));
}

Gates::~Gates() { open_all(); }

Gates::Gates(const Device& device, std::unique_ptr<PinnedMemory> memory, std::unique_ptr<GoingTrial> trial)
    : device_(device),
      memory_(std::move(memory)),
      trial_(std::move(trial)),
      words_(reinterpret_cast<std::uint32_t*>(memory_->data())),
      closed_(kMostClosed, 0) {
  std::fill_n(words_, kMostClosed, 0);
  for (std::size_t word = kMostClosed; word > 0; --word) free_.push_back(word - 1);
}

Status Gates::try_out() {
  const GoingStreams alone(device_);
  QCCL_ASSIGN(tried_out_, Trial::make(device_));
  LateOpener opener(*this);
  QCCL_TRY(close_word(tried_out_->gated->handle()));
  QCCL_ASSIGN(const bool worked, tried_out_->work(tried_out_->lanes, opener));
  if (!worked) {
    return held_up("another one did not go on for a second: they share a queue (CUDA_DEVICE_MAX_CONNECTIONS)");
  }
  QCCL_ASSIGN(const bool goes_on, tried_out_->work_beside_freeing(opener));
  opener.open();
  if (!goes_on) return held_up("calls of the driver wait for a thread that frees memory");
  return tried_out_->await_gated();
}

Result<std::optional<Gate>> Gates::close(CUstream_st* stream) {
  std::uint64_t id = 0;
  const Code code = device_.call(&Driver::stream_get_id, stream, &id);
  if (code != Code::success) return failure_of(device_.driver(), "cuStreamGetId", code);
  const Verdict known = verdict(id, GoingStream::come());
  if (known == Verdict::untried) {
    const GoingStreams streams(device_);
    return try_stream(stream, id, streams);
  }
  return known == Verdict::passed ? close_word(stream) : std::optional<Gate>();
}

// Streams that came later may share a queue with those that passed before.
Gates::Verdict Gates::verdict(std::uint64_t id, std::uint64_t come) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(come_, come) != come) std::erase_if(passed_, [](const auto& each) { return each.second; });
  const auto found = passed_.find(id);
  if (found != passed_.end()) return found->second ? Verdict::passed : Verdict::failed;
  return failed_ < kMostFailed ? Verdict::untried : Verdict::failed;
}

Result<std::optional<Gate>> Gates::try_stream(CUstream_st* stream, std::uint64_t id, const GoingStreams& streams) {
  QCCL_ASSIGN(const auto gate, close_word(stream));
  if (!gate) return gate;
  const Result<bool> goes_on = trial_->run(streams, kPatienceForStream);
  const bool passes = goes_on.ok() && goes_on.value();
  if (!passes) open(*gate);
  if (!goes_on.ok()) return Failure(goes_on.error());
  if (note(id, passes)) {
    log(LogLevel::warning,
        fmt::format("a stream of device {} shares a queue with one of the library's: calls block the "
                    "host there instead (CUDA_DEVICE_MAX_CONNECTIONS)",
                    device_.index()));
  }
  return passes ? gate : std::nullopt;
}

// True of the first that fails.
bool Gates::note(std::uint64_t id, bool passes) {
  const std::lock_guard lock(mutex_);
  if (passed_.size() >= kMostKnown) passed_.clear();
  passed_[id] = passes;
  return !passes && failed_++ == 0;
}

Result<std::optional<Gate>> Gates::close_word(CUstream_st* stream) {
  Gate gate;
  {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::optional<Gate>();
    gate.word = free_.back();
    free_.pop_back();
    gate.count = ++closed_[gate.word];
  }
  // Outside of the lock: the driver may wait for other gates.
  const Code code = device_.call(&Driver::stream_wait_value, stream,
                                 reinterpret_cast<DevicePointer>(words_ + gate.word), gate.count, kStreamWaitAtLeast);
  if (code == Code::success) return std::optional(gate);
  open(gate);
  return failure_of(device_.driver(), "cuStreamWaitValue32", code);
}

bool Gates::open(Gate gate) {
  const std::lock_guard lock(mutex_);
  return closed_[gate.word] == gate.count && open_word(gate.word);
}

void Gates::open_all() {
  const std::lock_guard lock(mutex_);
  for (std::size_t word = 0; word < kMostClosed; ++word) open_word(word);
}

bool Gates::open_word(std::size_t word) {
  if (words_[word] == closed_[word]) return false;
  // After what the host wrote for the stream.
  std::atomic_ref(words_[word]).store(closed_[word], std::memory_order_release);
  free_.push_back(word);
  opened_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

bool Gates::any_closed() const {
  const std::lock_guard lock(mutex_);
  return free_.size() < kMostClosed;
}

}  // namespace qccl::device
