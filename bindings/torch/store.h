// A c10d store (torchrun's, a file, a hash map, one written in Python) as the store in which QCCL's ranks meet.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "qccl/store.h"

namespace qccl::torch_binding {

class C10dStore final : public qccl::Store {
 public:
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;

 private:
  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace qccl::torch_binding
