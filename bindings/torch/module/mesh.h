// The shape of a mesh (qccl/mesh.h) as Python sees it.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace qccl::torch_binding {

void bind_mesh(pybind11::module_& module);

}  // namespace qccl::torch_binding
