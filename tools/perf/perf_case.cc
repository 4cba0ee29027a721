#include "tools/perf/perf_case.h"

#include <algorithm>

namespace qccl::tools {

namespace {

bool has_in_place(Operation operation) { return operation && operation != Collective::all_to_all; }

void run_sendrecv(Communicator& communicator, const Case& c, const Placement& p, std::optional<DeviceStream> stream) {
  const int next = (communicator.rank() + 1) % c.world;
  const int previous = (communicator.rank() + c.world - 1) % c.world;
  communicator.sendrecv({p.input, c.count, c.type, next}, {p.output, c.count, c.type, previous}, {.stream = stream});
}

}  // namespace

std::string_view name_of(Operation operation) { return operation ? to_string(*operation) : "sendrecv"; }

bool moves_compressed(Operation operation) {
  return operation && is_compressible(*operation) && !is_reduction(*operation);
}

bool has_input_parts(Operation operation) { return operation && has_input_pieces(*operation); }

bool has_output_parts(Operation operation) { return operation && has_output_pieces(*operation); }

std::uint64_t Case::input_count() const {
  return has_input_parts(collective) ? count * static_cast<std::uint64_t>(world) : count;
}

std::uint64_t Case::output_count() const {
  return has_output_parts(collective) ? count * static_cast<std::uint64_t>(world) : count;
}

bool Case::has_input(int rank) const {
  return rank == root || (collective != Collective::broadcast && collective != Collective::scatter);
}

bool Case::has_output(int rank) const {
  return rank == root || (collective != Collective::reduce && collective != Collective::gather);
}

bool Case::has_one_result() const {
  return collective == Collective::all_reduce || collective == Collective::broadcast ||
         collective == Collective::all_gather;
}

std::uint64_t Case::bytes() const { return std::max(input_count(), output_count()) * element_bytes(type); }

std::uint64_t count_for(Operation operation, std::uint64_t bytes, DataType type, int world) {
  if (operation == Collective::barrier) return 0;
  const std::uint64_t count = bytes / element_bytes(type);
  if (!has_input_parts(operation) && !has_output_parts(operation)) return count;
  return count / static_cast<std::uint64_t>(world) & ~(16 / element_bytes(type) - 1);
}

double bus_factor(const Case& c) { return c.collective ? bus_factor(*c.collective, c.world) : 1; }

Placement placement_of(const Case& c, int rank, std::byte* input, std::byte* output) {
  const std::uint64_t own = static_cast<std::uint64_t>(rank) * c.count * element_bytes(c.type);
  if (c.collective == Collective::broadcast) {
    std::byte* buffer = !c.in_place && rank == c.root ? input : output;
    return {buffer, buffer};
  }
  if (!c.in_place) return {input, output};
  if (!has_in_place(c.collective)) return {output, output, input};
  if (has_input_parts(c.collective)) return {input, input + own};
  if (has_output_parts(c.collective)) return {output + own, output};
  return {output, output};
}

CallOptions call_options(const Case& c, Algorithm algorithm, int rank, std::optional<DeviceStream> stream) {
  CallOptions options{
      .op = c.op, .premul_factor = premul_factor_of(rank), .root = c.root, .algorithm = algorithm, .stream = stream};
  if (moves_compressed(c.collective) && is_compressible(c.type)) options.compression = c.compression;
  return options;
}

void run_collective(Communicator& communicator, const Case& c, const Placement& placement, Algorithm algorithm,
                    BufferMemory& memory) {
  Placement p = placement;
  if (p.aside != nullptr) {
    memory.copy(p.aside, p.input, c.input_count() * element_bytes(c.type));
    p.input = p.aside;
  }
  if (c.collective == kSendrecv) return run_sendrecv(communicator, c, p, memory.stream());
  communicator.run({*c.collective, p.input, p.output, c.count, c.type,
                    call_options(c, algorithm, communicator.rank(), memory.stream())});
}

}  // namespace qccl::tools
