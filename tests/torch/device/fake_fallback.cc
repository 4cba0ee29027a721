// Runs an operator on the CPU, over copies that lie in memory as the device's tensors do: the results have the bits
// that the CPU's tensors give. (torch's own fallback packs them first, and sums then add in another order.)
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <map>
#include <utility>
#include <vector>

#include "fake_device.h"

namespace qccl::fake_device {
namespace {

bool is_ours(const at::Tensor& tensor) { return tensor.defined() && tensor.device().type() == kType; }

// Replaces the arguments of a call on its stack, and its results.
class CallOnCpu {
 public:
  CallOnCpu(const c10::OperatorHandle& operation, torch::jit::Stack& stack)
      : schema_(operation.schema()), stack_(stack), first_(stack.size() - schema_.arguments().size()) {}

  void replace_arguments() {
    for (std::size_t i = 0; i < schema_.arguments().size(); ++i) {
      originals_.push_back(stack_[first_ + i]);
      stack_[first_ + i] = replaced(originals_.back());
      copies_.push_back(stack_[first_ + i]);
    }
  }

  // Where the replaced arguments lie.
  c10::DispatchKey key() const { return key_; }

  void replace_results() {
    const std::size_t first = stack_.size() - schema_.returns().size();
    write_back();
    for (std::size_t i = 0; i < schema_.returns().size(); ++i) {
      c10::IValue& result = stack_[first + i];
      const std::optional<std::size_t> argument = aliased_argument(schema_.returns()[i]);
      result = argument ? originals_[*argument] : moved(result);
    }
  }

 private:
  static bool is_written(const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  }

  at::Tensor copy_of(const at::Tensor& tensor) {
    if (!is_ours(tensor)) return tensor;
    if (tensor.is_sparse()) {
      device_ = device_.value_or(tensor.device());
      key_ = c10::DispatchKey::SparseCPU;
      return tensor.cpu();
    }
    device_ = device_.value_or(tensor.device());
    const auto [found, is_new] = storages_.try_emplace(tensor.storage().unsafeGetStorageImpl());
    if (is_new) found->second = on_cpu(tensor);
    const at::Tensor& first = found->second;
    at::Tensor copy = at::empty({0}, tensor.options().device(at::kCPU))
                          .set_(first.storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
    copy.unsafeGetTensorImpl()->_set_conj(tensor.is_conj());
    copy._set_neg(tensor.is_neg());
    return copy;
  }

  c10::IValue replaced(const c10::IValue& value) {
    if (value.isTensor()) return copy_of(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> copies;
      for (const at::Tensor& tensor : value.toTensorVector()) copies.push_back(copy_of(tensor));
      return copies;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> copies;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        copies.push_back(tensor ? std::optional(copy_of(*tensor)) : std::nullopt);
      }
      return copies;
    }
    if (value.isDevice() && value.toDevice().type() == kType) {
      device_ = value.toDevice();
      return c10::Device(at::kCPU);
    }
    return value;
  }

  static void write_tensor(const at::Tensor& values, const at::Tensor& original) {
    if (!is_ours(original)) return;
    if (original.is_sparse()) {
      original.copy_(values);
      return;
    }
    if (values.sizes() != original.sizes()) original.resize_(values.sizes());
    write(values, original);
  }

  void write_back() {
    for (std::size_t i = 0; i < originals_.size(); ++i) {
      if (!is_written(schema_.arguments()[i])) continue;
      if (originals_[i].isTensor()) write_tensor(copies_[i].toTensor(), originals_[i].toTensor());
      if (!originals_[i].isTensorList()) continue;
      const auto originals = originals_[i].toTensorVector();
      const auto values = copies_[i].toTensorVector();
      for (std::size_t k = 0; k < originals.size(); ++k) write_tensor(values[k], originals[k]);
    }
  }

  // The written argument that the result is.
  std::optional<std::size_t> aliased_argument(const c10::Argument& result) const {
    if (!is_written(result)) return std::nullopt;
    for (std::size_t i = 0; i < originals_.size(); ++i) {
      const c10::AliasInfo* const info = schema_.arguments()[i].alias_info();
      if (info != nullptr && info->beforeSets() == result.alias_info()->beforeSets()) return i;
    }
    return std::nullopt;
  }

  at::Tensor to_device(const at::Tensor& tensor) const {
    return tensor.defined() && device_ ? tensor.to(*device_) : tensor;
  }

  c10::IValue moved(const c10::IValue& value) const {
    if (value.isTensor()) return to_device(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<at::Tensor> results;
    for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(to_device(tensor));
    return results;
  }

  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  const std::size_t first_;
  std::vector<c10::IValue> originals_;
  std::vector<c10::IValue> copies_;
  std::map<c10::StorageImpl*, at::Tensor> storages_;
  std::optional<c10::Device> device_;
  c10::DispatchKey key_ = c10::DispatchKey::CPU;
};

}  // namespace

void run_on_cpu(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  CallOnCpu call(operation, *stack);
  call.replace_arguments();
  operation.redispatchBoxed(c10::DispatchKeySet(call.key()), stack);
  call.replace_results();
}

namespace {

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

}  // namespace
}  // namespace qccl::fake_device
