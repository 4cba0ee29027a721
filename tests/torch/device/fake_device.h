// Torch's "privateuseone" as a device over the fake CUDA driver (tests/support/fake_cuda), named "fakecuda": tests
// without a GPU give the backend tensors of several devices, with memory that the host can't touch, streams that run
// late, and events.
//
// fake_streams.cc has devices, streams and events; fake_memory.cc memory and copies; fake_operators.cc, fake_sparse.cc
// and fake_fallback.cc what torch computes, which it does on the CPU; fake_training.cc what training asks for beside.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>

#include "support/fake_cuda/fake_cuda.h"

namespace qccl::fake_device {

inline constexpr auto kType = c10::DeviceType::PrivateUse1;

// ---- streams

// What the library gets: null for a default stream, as with CUDA.
CUstream_st* native_handle(const c10::Stream& stream);
CUstream_st* handle_of(const c10::Stream& stream);
// This thread's, of a device.
c10::Stream current_stream(c10::DeviceIndex device);
c10::DeviceIndex current_device();

// ---- memory

at::Allocator& allocator();
// A CPU tensor over a copy of the device tensor's whole storage, as the current stream leaves it.
at::Tensor on_cpu(const at::Tensor& tensor);
// The current stream writes the values into the device tensor.
void write(const at::Tensor& values, const at::Tensor& target);
// Keeps the bytes that fit.
void resize_storage(const c10::Storage& storage, std::size_t bytes);

// ---- operators

// A fallback of the dispatcher, and a kernel.
void run_on_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack);

}  // namespace qccl::fake_device
