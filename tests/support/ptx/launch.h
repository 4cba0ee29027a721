// Launches of a PTX module's entries on the CPU.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "support/ptx/program.h"
#include "support/ptx/warp.h"

namespace qccl::ptx {

struct Grid {
  std::uint32_t blocks = 1;
  std::uint32_t threads = kLanes;  // of a block: a multiple of kLanes
  Order order = Order::together;
};

// A loaded module. Thread-safe.
class Module {
 public:
  // Throws Fault for text that is not understood.
  explicit Module(const std::string& text);
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const Program& program() const { return program_; }

  // The bytes of the entry's parameters, from pointers to each, as cuLaunchKernel() takes them. Throws Fault if the
  // module has no such entry.
  std::vector<std::vector<std::byte>> parameters_of(const std::string& entry, void* const* values) const;

  // Runs block after block and, in each, warp after warp, the last ones first: a device gives no order. Throws Fault;
  // what was written stays.
  Counts launch(const std::string& entry, const std::vector<std::vector<std::byte>>& parameters, const Grid& grid,
                GlobalMemory& global);

 private:
  const Entry& find(const std::string& entry) const;
  std::unique_ptr<Warp> take_warp();

  const Program program_;
  std::mutex mutex_;                         // guards what follows
  std::vector<std::unique_ptr<Warp>> idle_;  // kept, because registers take long to fill
};

}  // namespace qccl::ptx
