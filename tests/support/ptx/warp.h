// Runs a program's instructions for the 32 lanes of a warp. Lanes that are at the same instruction run it together, as
// on a device; lanes that have parted go on one group after the other, in an order that the caller chooses, and come
// together again. `bar.warp.sync`, shuffles and votes wait for the lanes that they name: a Fault if those wait
// elsewhere or have ended, which on a device would hang or be undefined.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "support/ptx/memory.h"
#include "support/ptx/program.h"

namespace qccl::ptx {

// Lanes that have parted: `together` runs those that are behind first, so that they meet soon. The others run each lane
// by itself up to the next barrier, which shows what a missing one does.
enum class Order { together, forwards, backwards };

struct Counts {
  std::uint64_t instructions = 0;       // a lane's
  std::uint64_t warp_instructions = 0;  // of lanes together: what a scheduler issues
  std::uint64_t accesses = 0;           // loads and stores of global memory, a lane's
  std::uint64_t wide_accesses = 0;      // those of 16 bytes
  std::uint64_t shared_accesses = 0;

  Counts& operator+=(const Counts& other);
};

struct WarpIndex {
  std::uint32_t block = 0;
  std::uint32_t block_count = 1;
  std::uint32_t first_thread = 0;  // in the block
  std::uint32_t thread_count = kLanes;
};

struct Memories {
  TrackedMemory* shared = nullptr;  // of the block
  GlobalMemory* global = nullptr;
};

// Which warp of a launch runs, and on what.
struct WarpRun {
  WarpIndex index;
  Order order = Order::together;
  Memories memories;
};

// One thread at a time. The program and the memories outlive it.
class Warp {
 public:
  explicit Warp(const Program& program);

  // What run() runs from now on: an entry of the program, which outlives that, with the bytes of its parameters in
  // their order. Begins to count anew.
  void start(const Entry& entry, const std::vector<std::vector<std::byte>>& parameters);
  // Throws Fault.
  void run(const WarpRun& run);

  const Counts& counts() const { return counts_; }

  // ---- for operations

  template <class T>
  T* at(Slot slot) {
    return reinterpret_cast<T*>(registers_.get() + slot);
  }
  std::uint64_t address(const Instruction& instruction, int lane);
  // Where a lane's bytes are.
  std::byte* locate(const Instruction& instruction, int lane, std::size_t bytes, bool writes);

 private:
  // Lanes at one instruction that came there by the same calls.
  struct Group {
    Mask lanes = 0;
    std::uint32_t at = 0;
    std::vector<std::uint32_t> calls;  // the instructions that called
    bool waits = false;

    bool is_beside(const Group& other) const { return at == other.at && calls == other.calls && waits == other.waits; }
  };

  void begin();
  std::size_t choose();
  std::size_t join_equals(std::size_t index);
  void step(std::size_t index);
  bool advance(std::size_t index);
  void branch(std::size_t index, Mask taken, std::uint32_t target);
  void call(Group& group, const Instruction& instruction);
  bool meet(std::size_t index);
  void end_call(std::size_t index, Mask ended);
  void copy(const std::vector<Copy>& copies, Mask lanes);
  void part_again(std::size_t index);
  [[noreturn]] void fail(const std::string& what, std::uint32_t at) const;
  [[noreturn]] void fail_waiting() const;
  std::byte* locate_generic(std::uint64_t address, int lane, std::size_t bytes, bool writes);

  const Program& program_;
  std::unique_ptr<std::byte[]> registers_;
  std::vector<TrackedMemory> local_, parameters_;  // of each lane; the entry's parameters have places of their own
  const Entry* entry_ = nullptr;
  std::vector<Group> groups_;
  Counts counts_;
  WarpRun run_;
  int lane_ = -1;  // that accesses memory
};

}  // namespace qccl::ptx
