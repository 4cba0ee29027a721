#include "tensors.h"

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
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

// The factor of a PREMUL_SUM: a number, or a tensor of one element.
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

Elements reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* operation, CallOptions& options) {
  const auto chosen = library_op(op);
  const bool is_sum = chosen == ReduceOp::sum || chosen == ReduceOp::avg || chosen == ReduceOp::premul_sum;
  const bool by_parts = tensor.is_complex() && is_sum;
  const auto type = library_type(by_parts ? c10::toRealValueType(tensor.scalar_type()) : tensor.scalar_type());
  if (!type || !chosen) {
    C10_THROW_ERROR(NotImplementedError, std::string("qccl: ") + operation + " with " + name_of(op) + " of " +
                                             name_of(tensor) + " is not supported by the qccl backend");
  }
  options.op = *chosen;
  options.premul_factor = factor_of(op);
  return {*type, by_parts ? 2UL : 1UL};
}

at::Tensor local_reduction(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op, const char* operation) {
  const at::NoGradGuard no_grad;
  at::Tensor result = tensors.front().detach();
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const at::Tensor next = tensors[i].detach();
    switch (op.op_) {
      case c10d::ReduceOp::SUM:
      case c10d::ReduceOp::PREMUL_SUM: result = at::add(result, next); break;
      case c10d::ReduceOp::PRODUCT: result = at::mul(result, next); break;
      case c10d::ReduceOp::MIN: result = at::minimum(result, next); break;
      case c10d::ReduceOp::MAX: result = at::maximum(result, next); break;
      case c10d::ReduceOp::BAND: result = at::bitwise_and(result, next); break;
      case c10d::ReduceOp::BOR: result = at::bitwise_or(result, next); break;
      case c10d::ReduceOp::BXOR: result = at::bitwise_xor(result, next); break;
      default:
        C10_THROW_ERROR(NotImplementedError, std::string("qccl: ") + operation + " with " + name_of(op) +
                                                 " takes one tensor a rank, got " + std::to_string(tensors.size()));
    }
  }
  return result;
}

Elements elements_of(const at::Tensor& tensor) {
  if (const auto type = library_type(tensor.scalar_type())) return {*type};
  return {DataType::uint8, static_cast<std::size_t>(tensor.element_size())};
}

void check_readable(const at::Tensor& tensor, const char* operation) {
  if (!tensor.defined()) throw_bad_argument(operation, "got an undefined tensor");
  if (tensor.layout() != at::kStrided) {
    C10_THROW_ERROR(NotImplementedError,
                    std::string("qccl: ") + operation + " of sparse tensors is not supported by the qccl backend");
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

void check_like(const at::Tensor& tensor, const at::Tensor& first, const char* operation) {
  check_readable(tensor, operation);
  if (tensor.scalar_type() == first.scalar_type() && tensor.sizes() == first.sizes()) return;
  throw_bad_argument(operation, "several tensors of a rank must have one type and shape, got " +
                                    c10::str(name_of(first), first.sizes(), " and ", name_of(tensor), tensor.sizes()));
}

void check_alike(const std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.empty()) throw_bad_argument(operation, "needs a tensor, got none");
  for (const at::Tensor& tensor : tensors) {
    check_readable(tensor, operation);
    check_like(tensor, tensors.front(), operation);
  }
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.size() != 1) {
    throw_bad_argument(operation, "takes one tensor a rank, got " + std::to_string(tensors.size()));
  }
  return tensors.front();
}

std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, const Elements& elements) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(elements.count_in(tensor));
  return counts;
}

bool all_equal(const std::vector<std::size_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

}  // namespace qccl::torch_binding
