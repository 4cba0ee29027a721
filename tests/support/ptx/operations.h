// What PTX's instructions compute, by their names. Numbers are NVIDIA's "PTX ISA": single precision results that are no
// number are 0x7FFFFFFF, shifts by the width or more give 0 or the sign.
#pragma once

#include <bit>
#include <string>
#include <vector>

#include "support/ptx/program.h"
#include "support/ptx/warp.h"

namespace qccl::ptx {

// `widths`: bits of the operands, 1 for a predicate, targets first.
struct Form {
  Operation run = nullptr;
  std::vector<int> widths;
};

// An operation on registers alone, such as "add.s32"; null if this library does not know it.
const Form* find_operation(const std::string& name);

// An operation that lanes do together, such as "shfl.sync.bfly.b32". The lanes that it names are no operand of the
// form.
const Form* find_meeting(const std::string& name);

// A load or store of elements of a type ("u8", "f32") in registers of `width` bits; null if there is none.
Operation find_access(bool loads, const std::string& type, int width);

// mov of a register of `width` bits to or from `instruction.vector` parts.
Operation packing(int width);
Operation unpacking(int width);

template <class Use>
void for_lanes(Mask lanes, Use use) {
  if (lanes == kAllLanes) {
#pragma GCC ivdep
    for (int lane = 0; lane < kLanes; ++lane) use(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) use(std::countr_zero(lanes));
  }
}

}  // namespace qccl::ptx
