#include "backend/window.h"

#include "backend/backend.h"

#if QCCL_TORCH_HAS_WINDOWS

#include <string>
#include <utility>

namespace qccl::torch_binding {
namespace {

// What ranks tell each other of their tensors.
std::uint64_t label_of(at::ScalarType type) { return static_cast<std::uint64_t>(type); }

void check_place(const at::Tensor& tensor, const char* operation) {
  if (tensor.is_cpu()) return;
  C10_THROW_ERROR(NotImplementedError, c10::str("qccl: ", operation, ": windows and what is put into them lie in CPU ",
                                                "memory, the tensor is on ", tensor.device()));
}

void check_window(const at::Tensor& tensor) {
  check_place(tensor, "tensor_register");
  check_writable(tensor, "tensor_register");
  require(tensor.is_contiguous(), "tensor_register", "the tensor must be contiguous, its strides are ",
          tensor.strides());
}

// ValueError unless the tensor fits into the window of rank `to`.
void check_put(const qccl::Window& window, const at::Tensor& tensor, int to, std::int64_t offset) {
  check_place(tensor, "put");
  check_readable(tensor, "put");
  const auto type = static_cast<at::ScalarType>(window.label(to));
  require(tensor.scalar_type() == type, "put", "the tensor has elements of type ", tensor.scalar_type(),
          ", the window of rank ", to, " of ", type);
  const auto room = static_cast<std::int64_t>(window.bytes(to) / tensor.element_size());
  require(offset >= 0 && offset <= room && tensor.numel() <= room - offset, "put", tensor.numel(),
          " elements from offset ", offset, " on exceed the window of rank ", to, ", which has ", room);
}

template <class Options>
TorchCall call_of(c10d::OpType type, const char* title, int peer, const Options& options) {
  TorchCall call{type, title};
  call.peer = peer;
  if (options.timeout != c10d::kUnsetTimeout) call.options.timeout = options.timeout;
  return call;
}

}  // namespace

TensorWindow::~TensorWindow() {
  if (open_ != nullptr) job_->windows().close_in_background(std::move(open_));
}

std::shared_ptr<OpenWindow> TensorWindow::registered(const char* operation) const {
  const std::lock_guard lock(mutex_);
  if (open_ != nullptr) return open_;
  C10_THROW_ERROR(DistBackendError,
                  c10::str("qccl: ", operation, ": no tensor is registered with the window: call tensor_register()"));
}

int TensorWindow::checked(std::int64_t rank, const char* operation) const {
  require(rank >= 0 && rank < group_.size(), operation, "there is no rank ", rank, " in a group of ", group_.size());
  return static_cast<int>(rank);
}

void TensorWindow::tensor_register(const at::Tensor& tensor, bool) {
  check_window(tensor);
  {
    const std::lock_guard lock(mutex_);
    if (open_ != nullptr) {
      C10_THROW_ERROR(DistBackendError, "qccl: tensor_register: the window has a tensor: deregister that one first");
    }
  }
  auto opened = with_torch_errors([&] { return job_->windows().open(group_, tensor, label_of(tensor.scalar_type())); });
  const std::lock_guard lock(mutex_);
  open_ = std::move(opened);
}

void TensorWindow::tensor_deregister() {
  const std::shared_ptr<OpenWindow> open = registered("tensor_deregister");
  {
    const std::lock_guard lock(mutex_);
    open_ = nullptr;
  }
  with_torch_errors([&] { open->window.close(); });
}

TensorWindow::WorkPointer TensorWindow::start(TorchCall call, bool asynchronous) {
  auto work = c10::make_intrusive<CollectiveWork>(group_.rank(), std::move(call), share_);
  work->post(group_, 0);
  if (asynchronous) {
    work->complete_from_pool();
  } else {
    work->wait();
  }
  return work;
}

TensorWindow::WorkPointer TensorWindow::put(const at::Tensor& tensor, std::int64_t to, std::int64_t offset,
                                            bool asynchronous, const c10d::PutOptions& options) {
  const std::shared_ptr<OpenWindow> open = registered("put");
  const int target = checked(to, "put");
  check_put(open->window, tensor, target, offset);
  TorchCall call = call_of(c10d::OpType::SEND, "qccl:put", target, options);
  call.inputs = {tensor};
  const at::Tensor memory = call.memory.read({tensor});
  call.posts.push_back([=, timeout = call.options.timeout](Communicator&) {
    const std::size_t bytes = memory.nbytes();
    return open->window.put_async(
        {memory.const_data_ptr(), bytes, target, static_cast<std::size_t>(offset) * memory.element_size()}, timeout);
  });
  return start(std::move(call), asynchronous);
}

TensorWindow::WorkPointer TensorWindow::signal(std::int64_t to, bool asynchronous, const c10d::SignalOptions& options) {
  const std::shared_ptr<OpenWindow> open = registered("signal");
  TorchCall call = call_of(c10d::OpType::SEND, "qccl:signal", checked(to, "signal"), options);
  call.posts.push_back([open, peer = call.peer, timeout = call.options.timeout](Communicator&) {
    return open->window.signal_async(peer, timeout);
  });
  return start(std::move(call), asynchronous);
}

TensorWindow::WorkPointer TensorWindow::wait_signal(std::int64_t from, bool asynchronous,
                                                    const c10d::WaitSignalOptions& options) {
  const std::shared_ptr<OpenWindow> open = registered("wait_signal");
  TorchCall call = call_of(c10d::OpType::RECV, "qccl:wait_signal", checked(from, "wait_signal"), options);
  call.posts.push_back([open, peer = call.peer, timeout = call.options.timeout](Communicator&) {
    return open->window.wait_signal_async(peer, timeout);
  });
  return start(std::move(call), asynchronous);
}

at::Tensor TensorWindow::map_remote_tensor(std::int64_t rank) {
  const std::shared_ptr<OpenWindow> open = registered("map_remote_tensor");
  if (checked(rank, "map_remote_tensor") == group_.rank()) return open->tensor;
  C10_THROW_ERROR(NotImplementedError,
                  c10::str("qccl: map_remote_tensor: rank ", group_.rank(), " can't map the memory of rank ", rank,
                           ", only its own: write there with put()"));
}

c10d::WindowAttr TensorWindow::get_attr(std::int64_t rank) {
  registered("get_attr");
  const bool is_own = checked(rank, "get_attr") == group_.rank();
  return {is_own ? c10d::WindowAccessType::UNIFIED : c10d::WindowAccessType::SEPARATE};
}

c10::intrusive_ptr<c10d::Window> Backend::new_window(const std::optional<at::Tensor>& tensor) {
  const auto own = state();
  auto share = make_share(own->job, own->group, own->share->order, own->share->trace_group);
  auto window = c10::make_intrusive<TensorWindow>(own->job, own->group, std::move(share));
  if (tensor) window->tensor_register(*tensor);
  return window;
}

}  // namespace qccl::torch_binding

#endif
