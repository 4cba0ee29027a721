// One call of this rank: the plan that all ranks share, and what is this rank's own business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/pooled.h"
#include "base/rank.h"
#include "engine/call/device_part.h"
#include "engine/call/executable_plan.h"
#include "engine/call/feedback_state.h"
#include "engine/call/kept_input.h"
#include "engine/call/work_state.h"
#include "qccl/types.h"

namespace qccl::engine {

// A buffer of the same size on every rank of a group, which the ranks of one host map.
struct MappedRegion {
  std::uint64_t id = 0;  // the same on all ranks; from 1
  std::size_t bytes = 0;
  bool on_board = false;                              // all ranks map all, and meet on the group's board
  std::vector<std::shared_ptr<std::byte>> of_member;  // by group rank; null on other hosts
};

// A send or a recv.
struct Message {
  bool incoming = false;
  GroupRank peer;  // none: a recv takes a message of any rank
  int tag = 0;
  std::uint64_t count = 0;  // elements
  DataType type = DataType::uint8;
  Compression compression{};
  std::shared_ptr<const Codec> codec{};  // of the compression; null: none
};

// The buffers stay the caller's, and must stay valid until `work` is done.
struct CallArguments {
  std::uint64_t group = 0;
  std::shared_ptr<const ExecutablePlan> plan{};  // of a collective; null for a message
  std::optional<Message> message{};              // instead of a collective
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  double premul_factor = 1;  // premul_sum: times the input; ranks may differ
  // Distinguishes this call's random numbers from another's (random_key()). Empty: the engine numbers the group's
  // compressed collectives.
  std::optional<std::uint64_t> random_counter{};
  std::shared_ptr<internal::FeedbackState> feedback{};  // only with a codec
  std::shared_ptr<const MappedRegion> region{};         // that the call reduces in place
  DevicePartPtr device{};                               // null: no device has a part in it
  KeptInput kept{};                                     // to be given back if the call fails
  bool keeps_input = false;                             // which its output overwrites
  Nanoseconds timeout{0};
  std::shared_ptr<internal::WorkState> work;
  TimePoint posted{};      // for the log; unset: the time at which the engine gets it
  std::string log_name{};  // in the log; "": name()
  bool is_logged = true;   // false: the library's own call
  bool awaited = false;    // a hint: the thread that posts it will drive it

  // "all_reduce", "send"
  std::string_view name() const {
    if (!message) return to_string(plan->call().collective);
    return message->incoming ? "recv" : "send";
  }
};

using ArgumentsList = PooledVector<CallArguments>;

// DevicePart's place() and describe_place(); null and "" without one.
inline const void* device_of(const CallArguments& arguments) {
  return arguments.device == nullptr ? nullptr : arguments.device->place();
}
inline std::string describe_place(const CallArguments& arguments) {
  return arguments.device == nullptr ? "" : arguments.device->describe_place();
}
inline bool is_computed_by_device(const CallArguments& arguments) { return device_of(arguments) != nullptr; }

// MappedOperation runs it.
inline bool reduces_on_board(const CallArguments& arguments) {
  return arguments.region != nullptr && arguments.region->on_board;
}

}  // namespace qccl::engine
