// What tests/gpu asks of the fake driver beside a program's part (support/fake_cuda/fake_cuda.h), asked of the
// machine's: the library's streams, launches and objects, and failures on order. The linker gives the library this
// table of functions instead of its own (--wrap in tests/CMakeLists.txt); each passes its call on to the driver.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/driver.h"
#include "support/fake_cuda/fake_cuda.h"

namespace qccl::testing {

// One a process. Thread-safe.
class WatchedDriver {
 public:
  using Code = device::Code;

  static WatchedDriver& get();

  // The machine's driver, unwatched.
  const device::Driver& real() const { return real_; }
  // The table that the library gets.
  device::Driver watched() const;

  // The function's call after `calls` others gives this code; Code::success takes the order back.
  void fail(const std::string& function, Code code, int calls);
  std::optional<Code> take_failure(const std::string& function);
  bool was_ordered(Code code);

  // The library's, in the order in which it made them.
  std::vector<CUstream_st*> streams();
  std::size_t launches();
  device::fake::RegisteredUses registered_uses();
  std::size_t live_objects();

  void count_objects(int change);
  void add_stream(CUstream_st* stream);
  void remove_stream(CUstream_st* stream);
  const void* address_on_device(void* registered) const;
  void add_registered(const void* memory, std::size_t bytes);
  void remove_registered(const void* memory);
  void note_launch(void* const* parameters);

 private:
  struct Order {
    Code code;
    int calls;
  };

  WatchedDriver();
  bool is_registered(const void* memory) const;  // mutex_ is held

  device::Driver real_;
  std::mutex mutex_;  // guards the following
  std::map<std::string, Order> orders_;
  std::vector<Code> ordered_;
  std::vector<CUstream_st*> streams_;
  std::map<const std::byte*, std::size_t> registered_;
  device::fake::RegisteredUses uses_;
  std::size_t launches_ = 0;
  std::size_t objects_ = 0;
};

}  // namespace qccl::testing
