#include "gradients.h"

#include <torch/csrc/utils/pybind.h>

#include <utility>

namespace qccl::torch_binding {
namespace {

bool is_sum(ReduceOp op) { return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum; }

struct Caller {
  bool sums_gradients;
  std::string name;
};

Caller find_caller() {
  const py::gil_scoped_acquire held;
  const auto found = py::module_::import("qccl._gradients").attr("find_caller")();
  auto [sums_gradients, name] = found.cast<std::pair<bool, std::string>>();
  return {sums_gradients, std::move(name)};
}

}  // namespace

void EnvironmentSums::restrict(Collective collective, std::size_t count, DataType type, CallOptions& options) {
  if (!applies_ || options.compression || !is_sum(options.op) || group_.compression().is_none()) return;
  const Caller caller = find_caller();
  auto& logged = logged_[caller.sums_gradients ? 0 : 1];
  if (group_.rank() == 0 && !logged) {
    const Compression compression = group_.effective_compression(collective, count, type, options);
    if (!compression.is_none() && !logged.exchange(true)) {
      const py::gil_scoped_acquire held;
      py::module_::import("qccl._gradients")
          .attr("log_sums")(name_, compression.to_string(), caller.name, caller.sums_gradients);
    }
  }
  if (!caller.sums_gradients) options.compression = none();
}

}  // namespace qccl::torch_binding
