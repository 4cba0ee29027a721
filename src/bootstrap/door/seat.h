// What a newcomer is given at the door of an open job: its rank in the world that the job grows to, and where that
// world meets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::bootstrap {

struct Seat {
  // Longer than any encoded seat.
  static constexpr std::size_t kMaxBytes = 4096;

  std::int32_t rank = 0;
  std::int32_t world = 1;
  std::string job{};                     // the world's name, never used before
  std::vector<std::string> addresses{};  // of the store in which it meets
  std::uint16_t port = 0;                // of the same
  std::string compression{};             // of the group that grows
  std::int64_t timeout_ns = 0;           // of the same
  std::int64_t meeting_ns = 0;           // time for the meeting
};

std::string encode_seat(const Seat& seat);
// CorruptData if the bytes are no seat.
Result<Seat> decode_seat(std::string_view bytes);

}  // namespace qccl::bootstrap
