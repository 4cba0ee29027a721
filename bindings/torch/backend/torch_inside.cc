#include "backend/torch_inside.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tensors.h"

namespace qccl::torch_binding {
namespace {

// How often a wait looks whether it was aborted.
constexpr std::chrono::milliseconds kLook{20};

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

// A group of torch's goes on using its tensors after a call has failed or was aborted, so they are the group's own, and
// the caller's data is copied. torch's gloo has no reduce_scatter of its own (it sums all of a tensor on all ranks), so
// ranks exchange their parts and each adds its own, in the order of ranks.
class TorchInside final : public InsideGroup {
 public:
  TorchInside(BackendPointer backend, int size) : backend_(std::move(backend)), size_(size) {}
  // An aborted call may wait in there for ranks that are gone.
  ~TorchInside() override {
    if (aborted_) static_cast<void>(new BackendPointer(std::move(backend_)));
  }

  void reduce_scatter(const InsideCall& call) override {
    const at::Tensor parts = exchange(call).view(torch_type(call.type));
    at::Tensor sum = parts[0];
    for (int rank = 1; rank < size_; ++rank) add(sum, parts[rank], call.op);
    write(sum, call);
  }
  void all_gather(const InsideCall& call) override {
    at::Tensor input = copy_of(call.input, bytes_of(call));
    at::Tensor output = at::empty({size_ * input.numel()}, at::kByte);
    c10d::AllgatherOptions options;
    options.timeout = call.timeout;
    wait(backend_->_allgather_base(output, input, options), call);
    write(output, call);
  }
  void broadcast(const InsideCall& call) override {
    std::vector<at::Tensor> tensors{copy_of(call.output, bytes_of(call))};
    c10d::BroadcastOptions options;
    options.timeout = call.timeout;
    options.rootRank = call.root;
    wait(backend_->broadcast(tensors, options), call);
    write(tensors.front(), call);
  }
  void all_to_all(const InsideCall& call) override { write(exchange(call), call); }
  void abort() noexcept override { aborted_ = true; }

 private:
  static std::int64_t bytes_of(const InsideCall& call) {
    return static_cast<std::int64_t>(call.count * element_bytes(call.type));
  }
  static at::Tensor copy_of(const void* memory, std::int64_t bytes) {
    at::Tensor copy = at::empty({bytes}, at::kByte);
    std::memcpy(copy.mutable_data_ptr(), memory, static_cast<std::size_t>(bytes));
    return copy;
  }
  static void write(const at::Tensor& from, const InsideCall& call) {
    std::memcpy(call.output, from.const_data_ptr(), static_cast<std::size_t>(from.nbytes()));
  }
  static void add(at::Tensor& sum, const at::Tensor& part, ReduceOp op) {
    switch (op) {
      case ReduceOp::min: sum = at::minimum(sum, part); return;
      case ReduceOp::max: sum = at::maximum(sum, part); return;
      case ReduceOp::prod: sum.mul_(part); return;
      default: sum.add_(part);
    }
  }

  // Row r: what rank r has for this rank.
  at::Tensor exchange(const InsideCall& call) {
    const std::int64_t bytes = bytes_of(call);
    at::Tensor input = copy_of(call.input, size_ * bytes).view({size_, bytes});
    at::Tensor output = at::empty_like(input);
    std::vector<std::int64_t> even;
    c10d::AllToAllOptions options;
    options.timeout = call.timeout;
    wait(backend_->alltoall_base(output, input, even, even, options), call);
    return output;
  }

  void wait(const c10::intrusive_ptr<c10d::Work>& work, const InsideCall& call) {
    const auto deadline = std::chrono::steady_clock::now() + call.timeout;
    while (!work->isCompleted()) {
      if (aborted_) throw std::runtime_error("aborted");
      if (std::chrono::steady_clock::now() >= deadline) {
        throw std::runtime_error(backend_->getBackendName() + " had not ended after " +
                                 std::to_string(call.timeout.count()) + " ms");
      }
      try {
        work->wait(kLook);
      } catch (const std::exception&) {  // not done yet, or it has failed
      }
    }
    if (const std::exception_ptr failure = work->exception()) std::rethrow_exception(failure);
  }

  BackendPointer backend_;
  const int size_;
  std::atomic<bool> aborted_{false};
};

}  // namespace

InsideFactory torch_inside(std::string kind, c10::intrusive_ptr<c10d::Store> store) {
  return [kind = std::move(kind), store = std::move(store)](const InsideHost& host) {
    const py::gil_scoped_acquire held;
    const py::object make = py::module_::import("qccl._inside").attr("make");
    auto backend = make(kind, store, host.name, host.rank, host.size, host.timeout).cast<BackendPointer>();
    return std::make_unique<TorchInside>(std::move(backend), host.size);
  };
}

}  // namespace qccl::torch_binding
