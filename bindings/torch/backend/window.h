// torch's windows: a tensor of each rank into which the others write. qccl::Window does the work.
//
// Windows lie in CPU memory. A Window that is dropped without tensor_deregister(), in Python with the interpreter's
// lock held, closes on a thread of the completion pool, because closing waits for the other ranks. Until then its
// tensor stays alive, whether or not the window owns it, because others may still write to it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "qccl/window.h"
#include "shared_job.h"
#include "torch_release.h"
#include "work/work.h"

namespace qccl::torch_binding {

#if QCCL_TORCH_HAS_WINDOWS

// Its calls throw DistBackendError while no tensor is registered, ValueError for wrong arguments, and otherwise as
// Works do. Thread-safe.
class TensorWindow final : public c10d::Window {
 public:
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  // `share`: of the Works, of this window alone.
  TensorWindow(std::shared_ptr<SharedJob> job, Communicator group, std::shared_ptr<WorkShare> share)
      : job_(std::move(job)), group_(std::move(group)), share_(std::move(share)) {}
  ~TensorWindow() override;

  void tensor_register(const at::Tensor& tensor, bool owning = true) override;
  // Waits for the other ranks, as qccl::Window::close() does.
  void tensor_deregister() override;

  // Counts as a signal too, as in torch's nccl2 backend. Ends when the tensor may be changed again.
  WorkPointer put(const at::Tensor& tensor, std::int64_t to, std::int64_t offset, bool asynchronous,
                  const c10d::PutOptions& options) override;
  WorkPointer signal(std::int64_t to, bool asynchronous, const c10d::SignalOptions& options) override;
  WorkPointer wait_signal(std::int64_t from, bool asynchronous, const c10d::WaitSignalOptions& options) override;
  // This rank's own tensor; NotImplementedError for another rank.
  at::Tensor map_remote_tensor(std::int64_t rank) override;
  // UNIFIED for this rank, whose tensor can be mapped; SEPARATE for others.
  c10d::WindowAttr get_attr(std::int64_t rank) override;

 private:
  std::shared_ptr<OpenWindow> registered(const char* operation) const;
  int checked(std::int64_t rank, const char* operation) const;
  WorkPointer start(TorchCall call, bool asynchronous);

  const std::shared_ptr<SharedJob> job_;
  Communicator group_;
  const std::shared_ptr<WorkShare> share_;
  mutable std::mutex mutex_;          // guards the member below; never held while waiting
  std::shared_ptr<OpenWindow> open_;  // null: no tensor is registered
};

#endif

}  // namespace qccl::torch_binding
