// What a program chooses for a process group, and the form in which it gives that to torch: `qccl.Options`, an options
// object of c10d's, which torch copies, changes and hands on wherever it makes a group.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "qccl/compression.h"
#include "torch_release.h"

namespace qccl::torch_binding {

// The same on all ranks.
struct GroupSettings {
  std::optional<Compression> compression{};             // unset: the environment's, for sums of gradients only
  bool error_feedback = false;                          // for all compressed reductions
  std::optional<Compression> all_gather_compression{};  // for floating point tensors, as the next
  std::optional<Compression> message_compression{};
  std::string inside{};  // the backend inside the hosts, as qccl.Options names it; "": QCCL alone
};

struct GroupOptions final : c10d::Backend::Options {
  explicit GroupOptions(GroupSettings settings = {}, std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : Options("qccl", timeout), settings(std::move(settings)) {}

  c10::intrusive_ptr<Options> clone() const QCCL_OVERRIDE_2_15 { return c10::make_intrusive<GroupOptions>(*this); }

  GroupSettings settings;
};

// Those of a program that gave qccl.Options; of one that gave none, or a plain object, `otherwise`.
inline GroupSettings settings_in(const c10::intrusive_ptr<c10d::Backend::Options>& options, GroupSettings otherwise) {
  const auto* const own = dynamic_cast<const GroupOptions*>(options.get());
  return own == nullptr ? std::move(otherwise) : own->settings;
}

// torch's default of 30 minutes counts as unset.
inline std::optional<std::chrono::milliseconds> chosen_timeout(const c10d::Backend::Options& options) {
  return options.timeout == kBackendDefaultTimeout ? std::nullopt : std::optional(options.timeout);
}

}  // namespace qccl::torch_binding
