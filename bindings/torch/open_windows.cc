#include "open_windows.h"

#include <system_error>

namespace qccl::torch_binding {

std::shared_ptr<OpenWindow> OpenWindows::open(Communicator& group, const at::Tensor& tensor, std::uint64_t label) {
  const qccl::Window window = group.open_window(tensor.mutable_data_ptr(), tensor.nbytes(), label);
  auto open = std::make_shared<OpenWindow>(OpenWindow{window, tensor});
  const std::lock_guard lock(mutex_);
  std::erase_if(windows_, [](const WindowOfGroup& each) { return each.window.expired(); });
  windows_.push_back({group.name(), open});
  return open;
}

void OpenWindows::close_in_background(std::shared_ptr<OpenWindow> open) {
  const auto close = [open = std::move(open)] {
    try {
      open->window.close();
    } catch (const Error&) {
      // Another rank was lost or late; the memory is free all the same.
    }
  };
  try {
    pool_->expect();
  } catch (const std::system_error&) {
    return close();  // the system refuses threads
  }
  pool_->push(close);
}

void OpenWindows::close_in_background(const std::string& group) {
  for (auto& open : windows_of(group)) close_in_background(std::move(open));
}

void OpenWindows::abort(const std::string& reason, const std::string& group) {
  for (const auto& open : windows_of(group)) open->window.abort(reason);
}

std::vector<std::shared_ptr<OpenWindow>> OpenWindows::windows_of(const std::string& group) {
  std::vector<std::shared_ptr<OpenWindow>> open;
  const std::lock_guard lock(mutex_);
  for (const WindowOfGroup& each : windows_) {
    auto window = each.window.lock();
    if (window != nullptr && (group.empty() || each.group == group)) open.push_back(std::move(window));
  }
  return open;
}

}  // namespace qccl::torch_binding
