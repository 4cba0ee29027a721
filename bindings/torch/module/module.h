// The parts of the extension module. Functions that Python calls may throw qccl::Error, which becomes torch's exception
// (errors.h).
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace qccl::torch_binding {

// Each adds its functions and classes to the module: the communication log of all jobs of the process, the shape of a
// mesh (qccl/mesh.h), pipelines (qccl/pipeline.h).
void bind_log(py::module_& module);
void bind_mesh(py::module_& module);
void bind_pipeline(py::module_& module);

class Backend;
// ValueError if the process group has another backend.
Backend& own(const c10::intrusive_ptr<c10d::Backend>& backend);

// The function of the program that makes the call, if the log records callers ("debug"); else "".
std::string log_caller();

// Calls Communicator::compressed_allreduce() in place. Takes dense float32 tensors on the CPU: `buffer` of any shape
// and strides, the errors contiguous. Blocking. ValueError for other tensors or a wrong number of elements.
void compressed_allreduce(const c10::intrusive_ptr<c10d::Backend>& backend, const at::Tensor& buffer,
                          const at::Tensor& worker_error, const at::Tensor& server_error);

}  // namespace qccl::torch_binding
