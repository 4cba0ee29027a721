// The public ErrorFeedback and its saved form.
#include "qccl/error_feedback.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "base/digest/digest.h"
#include "engine/call/call_arguments.h"
#include "qccl/error.h"

namespace qccl {
namespace {

constexpr char kMagic[8] = {'Q', 'C', 'C', 'L', 'E', 'R', 'R', 'F'};
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 32;
constexpr std::size_t kChecksumBytes = 8;

std::uint64_t checksum(ConstBytes bytes) { return digest({reinterpret_cast<const char*>(bytes.data()), bytes.size()}); }

Error wrong(ErrorKind kind, const std::string& what) {
  return Error({.kind = kind, .message = "QCCL: error feedback: " + what});
}

}  // namespace

ErrorFeedback::ErrorFeedback(std::size_t count, std::uint64_t counter)
    : state_(std::make_shared<internal::FeedbackState>(count, counter)) {}

internal::FeedbackState& ErrorFeedback::idle_state() const {
  if (state_ == nullptr) throw wrong(ErrorKind::misuse, "there is no state: construct it with a count of elements");
  if (state_->is_busy()) throw wrong(ErrorKind::misuse, "a call that has not ended uses it: wait for its Work first");
  return *state_;
}

// In host memory.
internal::FeedbackState& ErrorFeedback::host_state() const {
  internal::FeedbackState& state = idle_state();
  const Status home = state.bring_home();
  if (!home.ok()) throw wrong(home.error().kind, "it can't be copied from the device: " + home.error().message);
  return state;
}

std::size_t ErrorFeedback::size() const { return state_ == nullptr ? 0 : state_->size(); }

std::uint64_t ErrorFeedback::counter() const { return idle_state().counter(); }

std::span<float> ErrorFeedback::residual() const {
  internal::FeedbackState& state = host_state();
  return {state.residual(), state.size()};
}

void ErrorFeedback::reset() { idle_state().reset(); }

void ErrorFeedback::reset(std::size_t begin, std::size_t count) {
  internal::FeedbackState& state = host_state();
  if (begin > state.size() || count > state.size() - begin) {
    throw wrong(ErrorKind::invalid_argument,
                fmt::format("elements {} to {} go beyond its {}", begin, begin + count, state.size()));
  }
  state.reset(begin, count);
}

void ErrorFeedback::settle(std::uint64_t counter) {
  internal::FeedbackState& state = host_state();
  if (counter == state.counter()) return;
  if (counter == state.other_counter()) return state.swap();
  const std::string other =
      state.other_counter() ? fmt::format(" and after {}", *state.other_counter()) : std::string();
  throw wrong(ErrorKind::misuse, fmt::format("settle({}): the residuals here are those after {} calls{}", counter,
                                             state.counter(), other));
}

std::vector<std::byte> ErrorFeedback::save() const {
  internal::FeedbackState& state = host_state();
  const std::size_t residual_bytes = state.size() * sizeof(float);
  std::vector<std::byte> saved(kHeaderBytes + residual_bytes + kChecksumBytes);
  std::memcpy(saved.data(), kMagic, sizeof(kMagic));
  store<std::uint64_t>(&saved[8], kVersion);
  store<std::uint64_t>(&saved[16], state.size());
  store<std::uint64_t>(&saved[24], state.counter());
  if (residual_bytes > 0) std::memcpy(&saved[kHeaderBytes], state.residual(), residual_bytes);
  const std::size_t end = kHeaderBytes + residual_bytes;
  store<std::uint64_t>(&saved[end], checksum({saved.data(), end}));
  return saved;
}

ErrorFeedback ErrorFeedback::restore(std::span<const std::byte> saved) {
  if (saved.size() < kHeaderBytes + kChecksumBytes || std::memcmp(saved.data(), kMagic, sizeof(kMagic)) != 0) {
    throw wrong(ErrorKind::corrupt_data, fmt::format("these {} bytes are not a saved state", saved.size()));
  }
  const std::size_t end = saved.size() - kChecksumBytes;
  if (checksum(saved.first(end)) != load<std::uint64_t>(&saved[end])) {
    throw wrong(ErrorKind::corrupt_data, "the saved state is damaged or cut off: its checksum differs");
  }
  if (const auto version = load<std::uint64_t>(&saved[8]); version != kVersion) {
    throw wrong(ErrorKind::unsupported, fmt::format("saved as version {}, this is version {}", version, kVersion));
  }
  const auto count = load<std::uint64_t>(&saved[16]);
  if (count != (end - kHeaderBytes) / sizeof(float) || (end - kHeaderBytes) % sizeof(float) != 0) {
    throw wrong(ErrorKind::corrupt_data, fmt::format("{} elements in {} bytes", count, end - kHeaderBytes));
  }
  ErrorFeedback restored(count, load<std::uint64_t>(&saved[24]));
  if (count > 0) std::memcpy(restored.state_->residual(), &saved[kHeaderBytes], count * sizeof(float));
  return restored;
}

}  // namespace qccl
