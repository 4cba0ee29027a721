// Groups and operations in words, for errors and status.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/failure/failure_handler.h"
#include "qccl/status.h"

namespace qccl::engine {

// "ranks 1, 3"
std::string rank_list(const Group& group, const std::vector<GroupRank>& members);
// "got 0 of 64 bytes"
std::string progress_text(const Waiting& waiting);

// The group's operations that have not ended, the oldest first, and what each waits for.
std::vector<std::string> describe_in_flight(const EngineParts& parts, std::uint64_t group);
// The error of a wait for `work` that was given up after `waited`: its first operation that has not ended, and the
// peers that it waits for. Nothing if all have ended.
std::optional<ErrorInfo> given_up(const EngineParts& parts, const FailureHandler& failures,
                                  const internal::WorkState& work, Milliseconds waited);
// Adds groups and calls in flight.
void report(const EngineParts& parts, RankStatus& status);

}  // namespace qccl::engine
