#include "tensors.h"

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>

namespace qccl::torch_binding {
namespace {

struct NamedType {
  at::ScalarType torch;
  DataType library;
};
constexpr NamedType kTypes[] = {
    {at::kFloat, DataType::float32},     {at::kDouble, DataType::float64}, {at::kHalf, DataType::float16},
    {at::kBFloat16, DataType::bfloat16}, {at::kInt, DataType::int32},      {at::kLong, DataType::int64},
    {at::kChar, DataType::int8},         {at::kShort, DataType::int16},    {at::kByte, DataType::uint8},
    {at::kUInt16, DataType::uint16},     {at::kUInt32, DataType::uint32},  {at::kUInt64, DataType::uint64},
    {at::kBool, DataType::boolean},
};

std::optional<DataType> library_type(at::ScalarType type) {
  const auto* const found = std::ranges::find(kTypes, type, &NamedType::torch);
  return found == std::end(kTypes) ? std::nullopt : std::optional(found->library);
}

struct NamedOperation {
  c10d::ReduceOp::RedOpType torch;
  ReduceOp library;
  const char* name;
};
constexpr NamedOperation kOperations[] = {
    {c10d::ReduceOp::SUM, ReduceOp::sum, "SUM"},
    {c10d::ReduceOp::AVG, ReduceOp::avg, "AVG"},
    {c10d::ReduceOp::PRODUCT, ReduceOp::prod, "PRODUCT"},
    {c10d::ReduceOp::MIN, ReduceOp::min, "MIN"},
    {c10d::ReduceOp::MAX, ReduceOp::max, "MAX"},
    {c10d::ReduceOp::BAND, ReduceOp::bit_and, "BAND"},
    {c10d::ReduceOp::BOR, ReduceOp::bit_or, "BOR"},
    {c10d::ReduceOp::BXOR, ReduceOp::bit_xor, "BXOR"},
    {c10d::ReduceOp::PREMUL_SUM, ReduceOp::premul_sum, "PREMUL_SUM"},
};

// Null if the library has no such operation.
const NamedOperation* operation_of(const c10d::ReduceOp& op) {
  const auto* const found = std::ranges::find(kOperations, op.op_, &NamedOperation::torch);
  return found == std::end(kOperations) ? nullptr : found;
}

const char* name_of(const c10d::ReduceOp& op) {
  const NamedOperation* const operation = operation_of(op);
  return operation == nullptr ? "an unknown operation" : operation->name;
}

// The factor of a PREMUL_SUM: a number, or a tensor of one element.
double factor_of(const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM || !op.supplement_) return 1;
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (supplement == nullptr) return 1;
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

// torch's own programs look for the word "timeout" in the exceptions they catch.
constexpr const char* kWhichTimeout =
    ". The timeout of a call is its own, else the one of its process group, else QCCL_TIMEOUT";

}  // namespace

std::exception_ptr to_torch(const ErrorInfo& error) {
  switch (error.kind) {
    case ErrorKind::invalid_argument: return std::make_exception_ptr(C10_BUILD_ERROR(ValueError, error.message));
    case ErrorKind::unsupported: return std::make_exception_ptr(C10_BUILD_ERROR(NotImplementedError, error.message));
    case ErrorKind::deadline_exceeded:
      return std::make_exception_ptr(C10_BUILD_ERROR(DistNetworkError, error.message + kWhichTimeout));
    case ErrorKind::peer_lost:
    case ErrorKind::corrupt_data: return std::make_exception_ptr(C10_BUILD_ERROR(DistNetworkError, error.message));
    case ErrorKind::misuse:
    case ErrorKind::aborted:
    case ErrorKind::resource_exhausted: break;
  }
  return std::make_exception_ptr(C10_BUILD_ERROR(DistBackendError, error.message));
}

Elements reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* operation, CallOptions& options) {
  const NamedOperation* const chosen = operation_of(op);
  const bool by_parts = tensor.is_complex() && chosen != nullptr && is_sum(chosen->library);
  const auto type = library_type(by_parts ? c10::toRealValueType(tensor.scalar_type()) : tensor.scalar_type());
  if (!type || chosen == nullptr) {
    C10_THROW_ERROR(NotImplementedError, c10::str("qccl: ", operation, " with ", name_of(op), " of torch.",
                                                  tensor.scalar_type(), " is not supported by the qccl backend"));
  }
  options.op = chosen->library;
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
        C10_THROW_ERROR(NotImplementedError, c10::str("qccl: ", operation, " with ", name_of(op),
                                                      " takes one tensor a rank, got ", tensors.size()));
    }
  }
  return result;
}

at::ScalarType torch_type(DataType type) { return std::ranges::find(kTypes, type, &NamedType::library)->torch; }

Elements elements_of(const at::Tensor& tensor) {
  if (const auto type = library_type(tensor.scalar_type())) return {*type};
  return {DataType::uint8, static_cast<std::size_t>(tensor.element_size())};
}

// A device of PrivateUse1 is CUDA's under another name, as in the tests, or the driver does not know its memory.
bool is_served(const c10::Device& device) { return device.is_cuda() || device.is_privateuseone(); }

std::optional<c10::Device> device_of(std::span<const at::Tensor> tensors, const char* operation,
                                     std::optional<c10::Device> known) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    const c10::Device device = tensor.device();
    require(!known || *known == device, operation, "needs tensors on one device, got some on ", known.value_or(device),
            " and on ", device);
    known = device;
  }
  return known;
}

std::optional<DeviceStream> stream_of_device(std::optional<c10::Device> device) {
  if (!device || !is_served(*device)) return std::nullopt;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device->type()).getStream(*device);
  return DeviceStream{device->index(), stream.native_handle()};
}

// An estimate builds a call without making it, and building one opens its device and looks at its stream.
void open_device(Communicator group, const DeviceStream& stream) {
  with_torch_errors([&] {
    group.group_start();
    group.broadcast_async(nullptr, 0, DataType::uint8, {.stream = stream});
    group.group_estimate();
  });
}

void check_readable(const at::Tensor& tensor, const char* operation) {
  require(tensor.defined(), operation, "got an undefined tensor");
  if (tensor.layout() != at::kStrided) {
    C10_THROW_ERROR(NotImplementedError,
                    c10::str("qccl: ", operation, " of sparse tensors is not supported by the qccl backend"));
  }
  require(tensor.device().is_cpu() || is_served(tensor.device()), operation,
          "needs tensors on the CPU or a CUDA device, got one on ", tensor.device());
}

void check_writable(const at::Tensor& tensor, const char* operation) {
  check_readable(tensor, operation);
  require(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, operation,
          "can't write a tensor in which several elements share memory (an expanded one); clone() it first");
}

void check_same_type(const at::Tensor& a, const at::Tensor& b, const char* operation) {
  require(a.scalar_type() == b.scalar_type(), operation, "input and output must have one type, got torch.",
          a.scalar_type(), " and torch.", b.scalar_type());
}

void check_like(const at::Tensor& tensor, const at::Tensor& first, const char* operation) {
  check_readable(tensor, operation);
  require(tensor.scalar_type() == first.scalar_type() && tensor.sizes() == first.sizes(), operation,
          "several tensors of a rank must have one type and shape, got torch.", first.scalar_type(), first.sizes(),
          " and torch.", tensor.scalar_type(), tensor.sizes());
}

void check_alike(const std::vector<at::Tensor>& tensors, const char* operation) {
  require(!tensors.empty(), operation, "needs a tensor, got none");
  for (const at::Tensor& tensor : tensors) check_like(tensor, tensors.front(), operation);
}

at::Tensor& only(std::vector<at::Tensor>& tensors, const char* operation) {
  require(tensors.size() == 1, operation, "takes one tensor a rank, got ", tensors.size());
  return tensors.front();
}

void check_parts(const c10d::Backend& group, const at::Tensor& whole, const at::Tensor& part, const char* operation) {
  check_readable(whole, operation);
  check_readable(part, operation);
  check_same_type(whole, part, operation);
  require(whole.numel() == part.numel() * group.getSize(), operation, "the larger tensor must have ", group.getSize(),
          " x ", part.numel(), " elements, it has ", whole.numel());
}

void check_list(const c10d::Backend& group, const std::vector<at::Tensor>& list, const at::Tensor& part,
                const char* operation) {
  require(list.size() == static_cast<std::size_t>(group.getSize()), operation,
          "the list must have one tensor for each of ", group.getSize(), " ranks, it has ", list.size());
  for (const at::Tensor& tensor : list) {
    check_readable(tensor, operation);
    check_same_type(tensor, part, operation);
  }
  const at::Tensor& own = list[static_cast<std::size_t>(group.getRank())];
  require(own.numel() == part.numel(), operation, "this rank's tensor of the list must have ", part.numel(),
          " elements, it has ", own.numel());
}

void check_even_list(const c10d::Backend& group, const std::vector<at::Tensor>& list, const at::Tensor& part,
                     const char* operation) {
  check_list(group, list, part, operation);
  for (const at::Tensor& tensor : list) {
    require(tensor.numel() == part.numel(), operation, "all tensors of the list must have ", part.numel(),
            " elements, one has ", tensor.numel());
  }
}

std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, const Elements& elements) {
  std::vector<std::size_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(elements.count_in(tensor));
  return counts;
}

std::vector<std::size_t> uneven_counts(const std::vector<at::Tensor>& tensors, const Elements& elements) {
  std::vector<std::size_t> counts = counts_of(tensors, elements);
  if (std::ranges::adjacent_find(counts, std::not_equal_to<>()) == counts.end()) counts.clear();
  return counts;
}

std::size_t bytes_before_own(const c10d::Backend& group, std::span<const at::Tensor> parts) {
  const auto rank = static_cast<std::size_t>(group.getRank());
  if (parts.size() == 1) return parts.front().nbytes() / static_cast<std::size_t>(group.getSize()) * rank;
  const auto before = parts.first(rank);
  return std::accumulate(before.begin(), before.end(), std::size_t{0},
                         [](std::size_t sum, const at::Tensor& tensor) { return sum + tensor.nbytes(); });
}

}  // namespace qccl::torch_binding
