// Memory as the lanes of a warp see it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/ptx/program.h"

namespace qccl::ptx {

// The device's memory and what it sees of the host's.
class GlobalMemory {
 public:
  virtual ~GlobalMemory() = default;
  // Where the bytes are. Throws Fault if a kernel may not touch them.
  virtual std::byte* at(std::uint64_t address, std::size_t bytes, bool writes) = 0;
};

// Memory whose addresses are the host's, unchecked.
class HostMemory : public GlobalMemory {
 public:
  std::byte* at(std::uint64_t address, std::size_t, bool) override { return reinterpret_cast<std::byte*>(address); }
};

// Memory that knows its size and which of its bytes were written.
class TrackedMemory {
 public:
  TrackedMemory(const char* name, std::size_t bytes) : name_(name), bytes_(bytes), written_(bytes) {}

  // Nothing that was written since keep() counts as written.
  void forget() {
    if (first_ < end_) std::fill(written_.data() + first_, written_.data() + end_, 0);
    first_ = bytes_.size();
    end_ = 0;
  }
  // What is written now stays so.
  void keep() {
    first_ = bytes_.size();
    end_ = 0;
  }

  std::byte* at(std::uint64_t offset, std::size_t bytes, bool writes) {
    if (offset > bytes_.size() || bytes > bytes_.size() - offset) {
      throw Fault(place(offset, bytes) + " is outside of its " + std::to_string(bytes_.size()));
    }
    char* const written = written_.data() + offset;
    if (writes) {
      for (std::size_t i = 0; i < bytes; ++i) written[i] = 1;
      note_written(offset, bytes);
    } else {
      bool all = true;
      for (std::size_t i = 0; i < bytes; ++i) all = all && written[i] != 0;
      if (!all) throw Fault(place(offset, bytes) + " is read before anything is written there");
    }
    return bytes_.data() + offset;
  }

  // What was not written stays so: a structure has gaps.
  void copy(std::size_t from, std::size_t to, std::size_t bytes) {
    std::copy_n(bytes_.data() + from, bytes, bytes_.data() + to);
    std::copy_n(written_.data() + from, bytes, written_.data() + to);
    note_written(to, bytes);
  }

 private:
  void note_written(std::size_t offset, std::size_t bytes) {
    first_ = std::min(first_, offset);
    end_ = std::max(end_, offset + bytes);
  }
  std::string place(std::uint64_t offset, std::size_t bytes) const {
    return std::string(name_) + " memory [" + std::to_string(offset) + ", " + std::to_string(offset + bytes) + ")";
  }

  const char* name_;
  std::vector<std::byte> bytes_;
  std::vector<char> written_;
  std::size_t first_ = 0;  // of the places that forget() clears
  std::size_t end_ = 0;
};

// Generic addresses of memory that is not global. No pointer of a process has these bits.
inline constexpr std::uint64_t kWindowMask = 0xFFFF'0000'0000'0000;
inline constexpr std::uint64_t kSharedWindow = 0x7A01'0000'0000'0000;
inline constexpr std::uint64_t kLocalWindow = 0x7A02'0000'0000'0000;
inline constexpr std::uint64_t kParameterWindow = 0x7A03'0000'0000'0000;

}  // namespace qccl::ptx
