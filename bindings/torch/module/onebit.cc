// DeepSpeed's 1-bit all-reduce (qccl/onebit.h) for torch's tensors.
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "module/module.h"
#include "tensors.h"

namespace qccl::torch_binding {
namespace {

constexpr const char* kOperation = "compressed_allreduce";

void check_float(const at::Tensor& tensor, const char* name) {
  check_writable(tensor, kOperation);
  require(tensor.scalar_type() == at::kFloat, kOperation, std::string(name), " must be float32, not ",
          c10::toString(tensor.scalar_type()));
}

std::span<float> elements_of_error(const at::Tensor& error, const char* name) {
  check_float(error, name);
  require(error.is_contiguous(), kOperation, std::string(name), " must be contiguous");
  return {error.mutable_data_ptr<float>(), static_cast<std::size_t>(error.numel())};
}

}  // namespace

void compressed_allreduce(const c10::intrusive_ptr<c10d::Backend>& backend, const at::Tensor& buffer,
                          const at::Tensor& worker_error, const at::Tensor& server_error) {
  check_float(buffer, "the buffer");
  const std::span<float> worker = elements_of_error(worker_error, "worker_error");
  const std::span<float> server = elements_of_error(server_error, "server_error");
  CallMemory memory;
  const at::Tensor sum = memory.update(buffer);
  const std::span<float> elements(sum.mutable_data_ptr<float>(), static_cast<std::size_t>(sum.numel()));
  own(backend).communicator().compressed_allreduce(elements, worker, server);
  memory.finish();
}

}  // namespace qccl::torch_binding
