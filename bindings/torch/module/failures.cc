// The part of qccl._C for groups that go on after a failure or get new ranks, and for estimates of time, which torch
// has from 2.15 on.
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <tuple>
#include <vector>

#include "backend/backend.h"

namespace qccl::torch_binding {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
using OptionalMs = std::optional<std::int64_t>;

std::vector<std::tuple<int, std::string, std::string>> failed(const BackendPointer& backend) {
  std::vector<std::tuple<int, std::string, std::string>> lost;
  for (const LostRank& each : own(backend).communicator().failed()) {
    lost.emplace_back(each.rank, to_string(each.grade), each.reason);
  }
  return lost;
}

std::pair<BackendPointer, std::vector<int>> shrink(const BackendPointer& backend, const std::vector<int>& without,
                                                   bool any_quorum, OptionalMs patience_ms, OptionalMs timeout_ms) {
  ShrinkOptions options{.without = without, .quorum = any_quorum ? Quorum::any : Quorum::majority};
  if (patience_ms) options.patience = std::chrono::milliseconds(*patience_ms);
  if (timeout_ms) options.timeout = std::chrono::milliseconds(*timeout_ms);
  std::vector<int> members = own(backend).shrink_to_living(options);
  return {own(backend).successor(nullptr), std::move(members)};
}

}  // namespace

void bind_failures(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  module.def("failed", &failed, Released());
  module.def("shrink", &shrink, Released());
  module.def(
      "start_time_estimate", [](const BackendPointer& backend) { own(backend).startTimeEstimate(); }, Released());
  module.def(
      "end_time_estimate", [](const BackendPointer& backend) { return own(backend).endTimeEstimate(); }, Released());
#if QCCL_TORCH_HAS_RECONFIGURE
  module.def(
      "make_reconfigurable",
      [](const GroupSpec& spec, const std::string& handle) -> BackendPointer {
        return c10::make_intrusive<Backend>(spec, handle);
      },
      Released());
#endif
}

}  // namespace qccl::torch_binding
