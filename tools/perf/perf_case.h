// One measurement: a collective with its sizes, type, operation and placement, and the buffers it runs on.
#pragma once

#include <qccl/qccl.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tools/perf/perf_memory.h"

namespace qccl::tools {

// The timed operation: a collective, or a sendrecv of every rank, to the next rank and from the previous one.
using Operation = std::optional<Collective>;
inline constexpr Operation kSendrecv = std::nullopt;
std::string_view name_of(Operation operation);

struct Case {
  Operation collective = Collective::all_reduce;
  DataType type = DataType::float32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  int world = 1;
  std::uint64_t count = 0;  // elements, as the public call counts them
  bool in_place = false;
  std::optional<Compression> compression{};  // from --compression, if given

  bool is_reduction() const { return collective && qccl::is_reduction(*collective); }
  bool is_rooted() const { return collective && qccl::is_rooted(*collective); }
  // Elements of an input and an output, on the ranks that have one.
  std::uint64_t input_count() const;
  std::uint64_t output_count() const;
  bool has_input(int rank) const;
  bool has_output(int rank) const;
  // True if all ranks get the same output.
  bool has_one_result() const;
  // nccl-tests' size column: the larger of input and output.
  std::uint64_t bytes() const;
};

// True if the operation moves data and can carry it compressed when the call asks for it.
bool moves_compressed(Operation operation);

// True if a rank's input (output) is a part for (from) each rank.
bool has_input_parts(Operation operation);
bool has_output_parts(Operation operation);

// The count for a size of `bytes`, rounded as nccl-tests does: parts to 16 bytes.
std::uint64_t count_for(Operation operation, std::uint64_t bytes, DataType type, int world);

// busbw / algbw.
double bus_factor(const Case& c);

// Where one rank's call reads and writes.
struct Placement {
  std::byte* input;
  std::byte* output;
  std::byte* aside = nullptr;
};

// `input` and `output` are as large as the largest case needs. A broadcast is in place on every
// rank: out of place, the root's buffer is the input and the other ranks' the output. all_to_all and
// sendrecv have no in-place form: their input lies in the output and is first copied to `aside`.
Placement placement_of(const Case& c, int rank, std::byte* input, std::byte* output);

// A rank's factor in premul_sum, as nccl-tests has it: products are exact.
constexpr double premul_factor_of(int rank) { return rank % 2 == 0 ? 1 : 2; }

// The options of the collective as `rank` calls it. The call requests compression for operations that move data;
// reductions use the communicator's default, if they are large enough. `stream`: see BufferMemory.
CallOptions call_options(const Case& c, Algorithm algorithm, int rank, std::optional<DeviceStream> stream);

// `memory` has the buffers. Blocks; throws qccl::Error.
void run_collective(Communicator& communicator, const Case& c, const Placement& placement, Algorithm algorithm,
                    BufferMemory& memory);

}  // namespace qccl::tools
