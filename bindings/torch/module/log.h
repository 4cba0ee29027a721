// The communication log for Python: one setting for all worlds of the process, and their records.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

namespace qccl::torch_binding {

// Adds the module's functions for the log.
void define_log(py::module& module);

// The function of the program that makes the call, if the log records callers ("debug"); else "".
std::string log_caller();

}  // namespace qccl::torch_binding
