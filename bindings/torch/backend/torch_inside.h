// A process group of torch's as the library inside a host (qccl/inside.h): qccl.Options(inside="gloo").
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "qccl/inside.h"

namespace qccl::torch_binding {

// Groups of that kind, which qccl._inside.make() makes; their ranks meet in the store. Of host memory alone.
InsideFactory torch_inside(std::string kind, c10::intrusive_ptr<c10d::Store> store);

}  // namespace qccl::torch_binding
