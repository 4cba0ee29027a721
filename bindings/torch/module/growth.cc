// The part of qccl._C for jobs that grow (docs/growing.md).
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "shared_job.h"

namespace qccl::torch_binding {
namespace {

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;
using OptionalMs = std::optional<std::int64_t>;

constexpr std::size_t kMostShared = 512;

// A group that has grown and has no process group yet.
struct Grown {
  Communicator group;

  // Rank 0's text on all ranks, with at most kMostShared bytes.
  std::string share(const std::string& text) {
    std::string bytes = text;
    bytes.resize(kMostShared);
    group.broadcast(bytes.data(), bytes.size(), DataType::uint8);
    return bytes.substr(0, bytes.find('\0'));
  }
};

std::optional<std::chrono::milliseconds> milliseconds_of(OptionalMs ms) {
  return ms ? std::optional(std::chrono::milliseconds(*ms)) : std::nullopt;
}

// Nothing if no newcomer was taken in.
std::optional<Grown> grow(const BackendPointer& backend, std::size_t at_least, std::optional<std::size_t> at_most,
                          OptionalMs patience_ms, OptionalMs timeout_ms) {
  GrowOptions options{
      .at_least = at_least, .patience = milliseconds_of(patience_ms), .timeout = milliseconds_of(timeout_ms)};
  if (at_most) options.at_most = *at_most;
  Communicator group = own(backend).communicator();
  Communicator grown = group.grow(options);
  return grown.size() == group.size() ? std::nullopt : std::optional(Grown{std::move(grown)});
}

// Members have torch's default group, whose name is "0".
Grown join(const std::string& doors, OptionalMs timeout_ms, const c10::intrusive_ptr<c10d::Store>& store) {
  InitOptions options{.job = "torch/0", .log = JobRegistry::instance().log_options()};
  options.join = doors;
  if (store != nullptr) options.store = meeting_store(store);
  options.init_timeout = milliseconds_of(timeout_ms);
  return {qccl::init(options)};
}

BackendPointer make_grown_backend(const Grown& grown, GroupSpec spec) {
  spec.timeout = grown.group.timeout();
  return Backend::make_grown(grown.group, spec);
}

}  // namespace

void bind_growth(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<Grown>(module, "Grown")
      .def_property_readonly("rank", [](const Grown& grown) { return grown.group.rank(); })
      .def_property_readonly("size", [](const Grown& grown) { return grown.group.size(); })
      .def_property_readonly("door", [](const Grown& grown) { return grown.group.door(); })
      .def_property_readonly("compression", [](const Grown& grown) { return grown.group.compression().to_string(); })
      .def("share", &Grown::share, Released());
  module.def("grow", &grow, Released());
  module.def("join", &join, Released());
  module.def("make_grown_backend", &make_grown_backend, Released());
  module.def("door", [](const BackendPointer& backend) { return own(backend).communicator().door(); });
}

}  // namespace qccl::torch_binding
