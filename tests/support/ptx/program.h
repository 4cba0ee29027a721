// A PTX module made ready to run (assembler.h makes it, warp.h runs it). All functions' instructions lie in one array,
// and every register, immediate and special register has a slot in a warp's register file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace qccl::ptx {

inline constexpr int kLanes = 32;
using Mask = std::uint32_t;  // bit i: lane i
inline constexpr Mask kAllLanes = ~Mask{0};

// PTX that this library does not know, or that does what a device would not forgive. The message says where.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Space : std::uint8_t { generic, global, shared, local, param };

// Offset in a register file, in bytes: kLanes values of the register's width, or one Mask of a predicate.
using Slot = std::uint32_t;

class Warp;
struct Instruction;
using Operation = void (*)(Warp&, const Instruction&, Mask lanes);

// What an instruction does to the lanes that run it. `meet` waits for other lanes, then runs for all of them.
enum class Flow : std::uint8_t { next, branch, call, ret, meet };

struct Instruction {
  Operation run = nullptr;
  Flow flow = Flow::next;
  bool has_predicate = false;
  bool is_negated = false;  // runs where the predicate is false
  Space space = Space::generic;
  bool has_wide_base = true;  // an address in a 64-bit register
  std::uint8_t vector = 1;    // elements of a load, store or packing move
  Slot predicate = 0;
  Slot members = 0;                // of `meet`: the lanes that it waits for
  std::array<Slot, 6> operands{};  // in the order of the text, vectors element by element
  std::int64_t offset = 0;         // of an address
  std::uint32_t target = 0;        // the instruction of a branch, or the index in Program::calls
  int line = 0;
};

// Bytes of each lane's parameter memory.
struct Parameter {
  std::uint32_t offset = 0;
  std::uint32_t bytes = 0;
};

struct Copy {
  Parameter from;
  std::uint32_t to = 0;
};

struct Call {
  std::uint32_t begin = 0;  // instruction
  std::vector<Copy> arguments;
  std::vector<Copy> results;
};

struct Entry {
  std::uint32_t begin = 0;  // instruction
  std::vector<Parameter> parameters;
  std::size_t shared_bytes = 0;  // of a block
};

struct Constant {
  Slot slot = 0;
  int bits = 0;  // its width
  std::uint64_t value = 0;
};

// By name, as in "%tid.x"; all have 32 bits.
enum class Special : std::uint8_t { thread, block, block_count, thread_count, lane };
inline constexpr std::array<const char*, 5> kSpecialNames = {"%tid.x", "%ctaid.x", "%nctaid.x", "%ntid.x", "%laneid"};

struct Program {
  std::string version;  // "9.0"
  std::string target;   // "sm_75"
  std::vector<Instruction> code;
  std::vector<std::string> text;  // of each instruction
  std::vector<Call> calls;
  std::map<std::string, Entry> entries;
  std::vector<Constant> constants;
  std::array<Slot, kSpecialNames.size()> specials{};
  std::size_t register_bytes = 0;
  std::size_t parameter_bytes = 0;  // of a lane, as the local ones
  std::size_t local_bytes = 0;
};

}  // namespace qccl::ptx
