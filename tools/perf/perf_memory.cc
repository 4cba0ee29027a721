#include "tools/perf/perf_memory.h"

#include <cstring>
#include <vector>

namespace qccl::tools {
namespace {

class HostBuffers final : public BufferMemory {
 public:
  explicit HostBuffers(int local_rank) : local_rank_(local_rank) {}

  std::byte* allocate(std::uint64_t bytes) override { return buffers_.emplace_back(bytes).data(); }
  std::optional<DeviceStream> stream() const override { return std::nullopt; }
  int device() const override { return local_rank_; }
  std::string name() const override { return "CPU"; }
  std::byte* contents(std::byte* buffer, std::uint64_t) override { return buffer; }
  void put(std::byte*, std::uint64_t) override {}
  const std::byte* get(const std::byte* buffer, std::uint64_t) override { return buffer; }
  void copy(std::byte* target, const std::byte* source, std::uint64_t bytes) override {
    std::memcpy(target, source, bytes);
  }

 private:
  const int local_rank_;
  std::vector<Pages> buffers_;
};

}  // namespace

std::unique_ptr<BufferMemory> make_host_buffers(int local_rank) { return std::make_unique<HostBuffers>(local_rank); }

}  // namespace qccl::tools
