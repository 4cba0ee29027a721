// Which plans run on a device's lanes, and where their slices lie in pinned host memory on their way.
//
// A lane has several slices at once. Each has a place for the payload that the lane makes, one for the payload of each
// step that receives, and one for a partial sum, if the lane adds more parts than a job has sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/call/executable_plan.h"

namespace qccl::engine {

class DeviceLayout {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;
  static constexpr std::uint64_t kMostDepth = 8;

  struct Lane {
    std::size_t begin = 0;
    std::size_t slice_bytes = 0;
    // From where a slice's memory begins; kNone: there is none.
    std::size_t payload = kNone;
    std::size_t sum = kNone;
    std::vector<std::size_t> received{};  // by step
  };

  // Nothing if the plan's codec has no kernels, or its steps no jobs: a lane has several payloads, goes on with a sum
  // that it has sent, or adds what it has decoded of its own input. Nor with error feedback, if a lane does not send
  // the input encoded.
  static std::optional<DeviceLayout> of(const ExecutablePlan& plan, int world);

  const std::vector<Lane>& lanes() const { return lanes_; }
  std::uint64_t depth() const { return depth_; }  // slices of a lane at once
  std::size_t bytes() const { return bytes_; }

 private:
  explicit DeviceLayout(std::uint64_t depth) : depth_(depth) {}
  void add_lane(const ExecutablePlan& plan, const plan::Lane& lane);

  std::vector<Lane> lanes_;
  std::uint64_t depth_;
  std::size_t bytes_ = 0;
};

// Bytes of pinned memory for the plan's lanes; 0 if they can't run on a device.
std::size_t device_lane_bytes(const ExecutablePlan& plan, int world);

}  // namespace qccl::engine
