// A c10d store (torchrun's, a file, a hash map, one written in Python) as the store in which QCCL's ranks meet.
#include <c10/util/Exception.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "qccl/error.h"
#include "shared_job.h"

namespace qccl::torch_binding {
namespace {

// A c10d client serves one thread at a time, and TCPStore's client warns of every wait that times
// out. Short waits are the ones expected to time out, so they poll instead.
constexpr std::chrono::milliseconds kLongestPolling{5000};
constexpr std::chrono::milliseconds kLongestPause{20};

[[noreturn]] void throw_store_failed(const char* call, const std::string& key, const std::string& cause) {
  ErrorInfo info;
  info.kind = ErrorKind::peer_lost;
  info.message = std::string("the store failed in ") + call + "(\"" + key + "\"): " + cause;
  throw Error(std::move(info));
}

bool answers(c10d::Store& store, const std::string& key) {
  try {
    store.check({key});
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

bool poll(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  std::chrono::milliseconds waited{0};
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
    if (store.check({key})) return true;
    if (waited >= timeout) return false;
    std::this_thread::sleep_for(pause);
    waited += pause;
  }
}

class C10dStore final : public qccl::Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void set(const std::string& key, const std::string& value) override {
    try {
      store_->set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
    } catch (const c10::Error& error) {
      throw_store_failed("set", key, error.what_without_backtrace());
    }
  }

  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    try {
      if (timeout > kLongestPolling) {
        store_->wait({key}, timeout);
      } else if (!poll(*store_, key, timeout)) {
        return std::nullopt;
      }
      const std::vector<std::uint8_t> value = store_->get(key);
      return std::string(value.begin(), value.end());
    } catch (const c10::Error& error) {
      // Stores report a timeout with different exception types. If the store still answers, it was a timeout.
      if (answers(*store_, key)) return std::nullopt;
      throw_store_failed("get", key, error.what_without_backtrace());
    }
  }

  std::int64_t add(const std::string& key, std::int64_t delta) override {
    try {
      return store_->add(key, delta);
    } catch (const c10::Error& error) {
      throw_store_failed("add", key, error.what_without_backtrace());
    }
  }

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<qccl::Store> library_store(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<C10dStore>(std::move(store));
}

}  // namespace qccl::torch_binding
