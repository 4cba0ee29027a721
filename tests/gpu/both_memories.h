// A collective in host memory and in device memory: the same bits, and nothing else is touched.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/call/executable_plan.h"
#include "gpu/device_job.h"
#include "plan/plan.h"
#include "support/test_data.h"

namespace qccl::testing {

inline constexpr std::size_t kGap = 64;

struct CollectiveCase {
  Collective collective;
  DataType type;
  std::size_t count;
  CallOptions options{};
  bool in_place = false;

  std::string name() const {
    return fmt::format("{} of {} {}, {}, {}{}", to_string(collective), count, to_string(type),
                       to_string(options.algorithm), options.compression.value_or(none()).to_string(),
                       in_place ? ", in place" : "");
  }
};

// Input and output of one rank in one piece of memory, with gaps of poison.
struct Layout {
  Layout(const CollectiveCase& made, int rank, int world) {
    const engine::ResolvedCall call{
        .collective = made.collective, .count = made.count, .type = made.type, .root = made.options.root};
    const std::size_t element = element_bytes(made.type);
    input_bytes = engine::input_elements(call, world, rank) * element;
    output_bytes = engine::output_elements(call, world, rank) * element;
    const bool shares = made.in_place || made.collective == Collective::broadcast;
    const std::size_t part = has_pieces(made.collective) ? engine::piece_begin(call, rank) * element : 0;
    input_at = kGap + (shares && input_bytes < output_bytes ? part : 0);
    output_at = kGap + (shares && input_bytes > output_bytes && output_bytes > 0 ? part : 0);
    if (!shares) output_at = input_at + input_bytes + kGap;
    bytes = std::max(input_at + input_bytes, output_at + output_bytes) + kGap;
  }

  std::size_t input_bytes, output_bytes, input_at, output_at, bytes;
};

inline void make(Communicator& comm, const CollectiveCase& made, std::byte* memory, const Layout& layout,
                 const CallOptions& options) {
  comm.run({made.collective, memory + layout.input_at, memory + layout.output_at, made.count, made.type, options});
}

// Makes each case in host memory and, in a group of its own, in device memory.
class BothMemories {
 public:
  explicit BothMemories(Communicator& comm) : host_(comm), device_(comm.dup()) {}

  void expect_equal(const CollectiveCase& made) { expect_equal(made, {}, {}); }
  // With the states of error feedback, each of its own memory's call.
  void expect_equal(const CollectiveCase& made, const ErrorFeedback& on_host, const ErrorFeedback& on_device) {
    SCOPED_TRACE(fmt::format("rank {}: {}", host_.rank(), made.name()));
    const Layout layout(made, host_.rank(), host_.size());
    ByteVector input = make_inputs(Pattern::normal, made.type, layout.input_bytes / element_bytes(made.type),
                                   host_.size(), ++cases_)[static_cast<std::size_t>(host_.rank())];
    ByteVector expected(layout.bytes, fake::kPoison);
    std::copy(input.begin(), input.end(), expected.begin() + static_cast<std::ptrdiff_t>(layout.input_at));
    CallOptions options = made.options;
    options.error_feedback = on_host;
    make(host_, made, expected.data(), layout, options);

    const DeviceBuffer memory(layout.bytes);
    memory.write(stream_, input, layout.input_at);
    options.error_feedback = on_device;
    options.stream = stream_;
    make(device_, made, memory.data(), layout, options);
    const ProgramStream other;
    EXPECT_TRUE(memory.read(other) == expected);
  }

 private:
  Communicator& host_;
  Communicator device_;
  const ProgramStream stream_;
  std::uint64_t cases_ = 0;
};

}  // namespace qccl::testing
