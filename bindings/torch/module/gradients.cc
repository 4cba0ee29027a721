#include "gradients.h"

#include <torch/csrc/utils/pybind.h>

#include <utility>

namespace qccl::torch_binding {

SumCaller find_sum_caller() {
  const py::gil_scoped_acquire held;
  const auto found = py::module_::import("qccl._gradients").attr("find_caller")();
  auto [sums_gradients, name] = found.cast<std::pair<bool, std::string>>();
  return {sums_gradients, std::move(name)};
}

void log_sums(const std::string& group, const Compression& compression, const SumCaller& caller) {
  const py::gil_scoped_acquire held;
  py::module_::import("qccl._gradients")
      .attr("log_sums")(group, compression.to_string(), caller.name, caller.sums_gradients);
}

}  // namespace qccl::torch_binding
