// Every operator new of this program, of the library as of the tests: counted, and refused where a test asks for it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl::testing {

// Allocations so far, and those that have not been freed.
std::size_t allocation_count();
std::size_t live_allocations();

// From now on the `nth` allocation of the process (from 1) is refused, `count` in a row, until that is taken back.
void refuse_allocation(std::int64_t nth, std::int64_t count = 1);
// Takes it back; whether one was refused.
bool stop_refusing();

}  // namespace qccl::testing
