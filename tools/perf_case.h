// One measurement: a collective with its sizes, type, operation and place of the result, and the
// buffers it runs on.
#pragma once

#include <qccl/qccl.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace qccl::tools {

struct Case {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  int world = 1;
  std::uint64_t count = 0;  // elements, as the public call counts them
  bool in_place = false;

  bool is_reduction() const { return qccl::is_reduction(collective); }
  // Elements of a rank's input and output.
  std::uint64_t input_count() const;
  std::uint64_t output_count() const;
  // nccl-tests' size column: the larger of input and output.
  std::uint64_t bytes() const;
};

// The count for a size of `bytes`, rounded as nccl-tests does: all_gather and reduce_scatter to
// 16 bytes per rank.
std::uint64_t count_for(Collective collective, std::uint64_t bytes, DataType type, int world);

// Bytes that algbw is about, and busbw / algbw.
std::uint64_t bandwidth_bytes(const Case& c);
double bus_factor(const Case& c);

// Page-aligned memory that is not touched before use.
class Buffer {
 public:
  Buffer() = default;
  // Throws std::bad_alloc.
  explicit Buffer(std::uint64_t bytes);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
};

// Where one rank's call reads and writes.
struct Placement {
  std::byte* input;
  std::byte* output;
};

// `input` and `output` are as large as the largest case needs. A broadcast is in place on every
// rank: out of place, the root's buffer is the input and the others' the output.
Placement place(const Case& c, int rank, const Buffer& input, const Buffer& output);

// A rank's factor in premul_sum, as nccl-tests has it: products are exact.
constexpr double premul_factor_of(int rank) { return rank % 2 == 0 ? 1 : 2; }

// Blocks; throws qccl::Error.
void run_collective(Communicator& communicator, const Case& c, const Placement& placement, Algorithm algorithm);

}  // namespace qccl::tools
