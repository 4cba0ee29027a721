// Host memory that stands for device memory while a call runs on the host. Pinned, so that the device copies by itself
// while the host does other things, and kept between calls: pinning takes longer than most calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"

namespace qccl::engine {

// A power of two of bytes; none by default.
struct Shadow {
  std::unique_ptr<device::PinnedMemory> pinned{};
  std::unique_ptr<std::byte[]> pageable{};  // instead
  std::size_t bytes = 0;

  std::byte* data() const { return pinned != nullptr ? pinned->data() : pageable.get(); }
};

// Thread-safe. The devices outlive it.
class ShadowPool {
 public:
  // `pinned_limit`: bytes. Beyond it, and where the system refuses to pin, shadows are pageable: the thread that drives
  // the engine then stands still during their copies.
  explicit ShadowPool(std::uint64_t pinned_limit) : pinned_limit_(pinned_limit) {}

  // At least so many bytes. Throws std::bad_alloc.
  Shadow take(const device::Device& device, std::size_t bytes);
  // Takes no memory, and frees a pageable shadow.
  void give_back(Shadow shadow);

  std::uint64_t pinned_bytes() const;

 private:
  static constexpr std::size_t kLeastBytes = 4096;
  static std::size_t size_class(std::size_t bytes);
  bool reserve(std::size_t bytes);
  Shadow find(std::size_t bytes);

  const std::uint64_t pinned_limit_;
  mutable std::mutex mutex_;                  // guards what follows
  std::array<std::vector<Shadow>, 64> free_;  // pinned, by the power of two
  std::array<std::size_t, 64> made_{};        // pinned, free or not
  std::uint64_t pinned_bytes_ = 0;
};

}  // namespace qccl::engine
