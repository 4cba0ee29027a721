// Counts every operator new of this program, the library's and the tests', and makes it fail if a test asks for that.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl::testing {

// The number of allocations so far, and of those that have not been freed.
std::size_t allocation_count();
std::size_t live_allocations();
// Their bytes, and the most bytes since reset_peak_bytes().
std::size_t live_bytes();
std::size_t peak_bytes();
void reset_peak_bytes();

// Refuses the `nth` allocation of the process from now on (counted from 1), and `count` in a row, until
// stop_refusing().
void refuse_allocation(std::int64_t nth, std::int64_t count = 1);
// Ends the refusals; returns whether an allocation was refused.
bool stop_refusing();

}  // namespace qccl::testing
