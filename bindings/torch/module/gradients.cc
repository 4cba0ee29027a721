#include "gradients.h"

#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "tensors.h"

namespace qccl::torch_binding {

EnvironmentSums::Caller EnvironmentSums::find_caller() {
  const py::gil_scoped_acquire held;
  const auto found = py::module_::import("qccl._gradients").attr("find_caller")();
  auto [sums_gradients, name] = found.cast<std::pair<bool, std::string>>();
  return {sums_gradients, std::move(name)};
}

void EnvironmentSums::log_once(const Compression& compression, const Caller& caller) {
  auto& logged = logged_[caller.sums_gradients ? 0 : 1];
  if (group_.rank() != 0 || compression.is_none() || logged.exchange(true)) return;
  const py::gil_scoped_acquire held;
  py::module_::import("qccl._gradients")
      .attr("log_sums")(name_, compression.to_string(), caller.name, caller.sums_gradients);
}

void EnvironmentSums::restrict(CollectiveCall& call) {
  if (!applies_ || call.options.compression || !is_sum(call.options.op)) return;
  with_torch_errors([&] {
    const Compression own = group_.compression();
    if (own.is_none()) return;
    const Compression compression = group_.choice(call).compression;
    const bool may_change = own.name() == automatic().name();
    if (compression.is_none() && !may_change) return;  // it is too small, say
    const Caller caller = find_caller();
    log_once(compression, caller);
    if (!caller.sums_gradients) call.options.compression = none();
  });
}

}  // namespace qccl::torch_binding
