#include "tensors.h"

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string>

namespace qccl::torch_binding {
namespace {

std::string name_of(const at::Tensor& tensor) { return std::string("torch.") + c10::toString(tensor.scalar_type()); }

std::optional<DataType> library_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return DataType::float32;
    case at::kDouble: return DataType::float64;
    case at::kHalf: return DataType::float16;
    case at::kBFloat16: return DataType::bfloat16;
    case at::kInt: return DataType::int32;
    case at::kLong: return DataType::int64;
    case at::kChar: return DataType::int8;
    case at::kShort: return DataType::int16;
    case at::kByte: return DataType::uint8;
    case at::kUInt16: return DataType::uint16;
    case at::kUInt32: return DataType::uint32;
    case at::kUInt64: return DataType::uint64;
    case at::kBool: return DataType::boolean;
    default: return std::nullopt;
  }
}

const char* name_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return "SUM";
    case c10d::ReduceOp::AVG: return "AVG";
    case c10d::ReduceOp::PRODUCT: return "PRODUCT";
    case c10d::ReduceOp::MIN: return "MIN";
    case c10d::ReduceOp::MAX: return "MAX";
    case c10d::ReduceOp::BAND: return "BAND";
    case c10d::ReduceOp::BOR: return "BOR";
    case c10d::ReduceOp::BXOR: return "BXOR";
    case c10d::ReduceOp::PREMUL_SUM: return "PREMUL_SUM";
    default: return "an unknown operation";
  }
}

std::optional<ReduceOp> library_op(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return ReduceOp::sum;
    case c10d::ReduceOp::AVG: return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::prod;
    case c10d::ReduceOp::MIN: return ReduceOp::min;
    case c10d::ReduceOp::MAX: return ReduceOp::max;
    case c10d::ReduceOp::BAND: return ReduceOp::bit_and;
    case c10d::ReduceOp::BOR: return ReduceOp::bit_or;
    case c10d::ReduceOp::BXOR: return ReduceOp::bit_xor;
    case c10d::ReduceOp::PREMUL_SUM: return ReduceOp::premul_sum;
    default: return std::nullopt;
  }
}

// What a PREMUL_SUM multiplies by: a number, or a tensor of one element.
double factor_of(const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM || !op.supplement_) return 1;
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) return 1;
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

}  // namespace

void throw_bad_argument(const char* operation, const std::string& problem) {
  C10_THROW_ERROR(ValueError, std::string("qccl: ") + operation + ": " + problem);
}

DataType reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* operation, CallOptions& options) {
  const auto type = library_type(tensor.scalar_type());
  const auto chosen = library_op(op);
  if (!type || !chosen) {
    C10_THROW_ERROR(NotImplementedError, std::string("qccl: ") + operation + " with " + name_of(op) + " of " +
                                             name_of(tensor) + " is not supported by the qccl backend yet");
  }
  options.op = *chosen;
  options.premul_factor = factor_of(op);
  return *type;
}

Elements elements_of(const at::Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (const auto type = library_type(tensor.scalar_type())) return {*type, count};
  return {DataType::uint8, count * tensor.element_size()};
}

void check_readable(const at::Tensor& tensor, const char* operation) {
  if (!tensor.defined()) throw_bad_argument(operation, "got an undefined tensor");
  if (tensor.layout() != at::kStrided) {
    C10_THROW_ERROR(NotImplementedError,
                    std::string("qccl: ") + operation + " of sparse tensors is not supported by the qccl backend yet");
  }
  if (!tensor.device().is_cpu()) {
    throw_bad_argument(operation, "needs tensors on the CPU, got one on " + tensor.device().str());
  }
}

void check_writable(const at::Tensor& tensor, const char* operation) {
  check_readable(tensor, operation);
  if (at::has_internal_overlap(tensor) == at::MemOverlap::Yes) {
    throw_bad_argument(operation,
                       "can't write a tensor in which several elements share memory (an expanded one); "
                       "clone() it first");
  }
}

void check_same_type(const at::Tensor& a, const at::Tensor& b, const char* operation) {
  if (a.scalar_type() == b.scalar_type()) return;
  throw_bad_argument(operation, "input and output must have one type, got " + name_of(a) + " and " + name_of(b));
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.size() != 1) {
    throw_bad_argument(operation, "takes one tensor a rank, got " + std::to_string(tensors.size()));
  }
  return tensors.front();
}

at::Tensor writable_memory(const at::Tensor& tensor, bool keep_values, std::vector<CopyBack>& copies) {
  if (tensor.is_contiguous()) return tensor;
  const at::Tensor memory =
      keep_values ? tensor.detach().contiguous() : at::empty(tensor.sizes(), tensor.options().requires_grad(false));
  copies.push_back({memory, tensor});
  return memory;
}

at::Tensor as_consecutive(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.front();
  std::int64_t offset = first.storage_offset();
  std::int64_t total = 0;
  for (const at::Tensor& tensor : tensors) {
    const bool follows = tensor.is_contiguous() && tensor.scalar_type() == first.scalar_type() &&
                         tensor.is_alias_of(first) && tensor.storage_offset() == offset;
    if (!follows) return {};
    offset += tensor.numel();
    total += tensor.numel();
  }
  return first.detach().as_strided({total}, {1}, first.storage_offset());
}

at::Tensor without_overlap(const at::Tensor& input, const at::Tensor& output, std::size_t in_place_offset) {
  const auto* in = static_cast<const char*>(input.const_data_ptr());
  const auto* out = static_cast<const char*>(output.const_data_ptr());
  const bool apart = in + input.nbytes() <= out || out + output.nbytes() <= in;
  if (apart || in == out + in_place_offset) return input;
  return input.clone();
}

}  // namespace qccl::torch_binding
