// Groups that grow: processes that come later join a job that runs.
//
// A job is open if its ranks are started with InitOptions::open: each of them then has a door (Communicator::door()),
// at which newcomers wait. A newcomer is started with InitOptions::join, the doors of one or more members or the store
// that lists them; its init() returns when the members take it in by Communicator::grow().
#pragma once

#include <chrono>
#include <cstddef>
#include <limits>
#include <optional>

namespace qccl {

// The ranks that call give the same.
struct GrowOptions {
  // Waits until so many newcomers are there.
  std::size_t at_least = 0;
  // Takes no more than that; the others wait on. A world has 1024 ranks at most.
  std::size_t at_most = std::numeric_limits<std::size_t>::max();
  // How long a newcomer that does not answer is waited for; it is not taken in. Once in its life. Unset: 2 s.
  std::optional<std::chrono::milliseconds> patience{};
  // The time for the whole call. Unset: the init timeout. Both times are positive.
  std::optional<std::chrono::milliseconds> timeout{};
};

}  // namespace qccl
