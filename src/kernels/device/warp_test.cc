// The kernels as the device's compiler sees them, warps included, with a thread for each lane: the entry points of
// kernels.cu over a shim for CUDA's threads, barriers and shuffles. ThreadSanitizer then sees a read of what another
// lane or another group writes without a barrier in between.
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/device/job_case.h"

namespace qccl::kernels::device {
namespace {

struct ThreadWarp {
  std::barrier<> barrier{kGroupLanes};
  std::array<std::uint32_t, kGroupLanes> words{};
};

struct Index {
  unsigned int x = 0;
};

thread_local Index thread_index, block_index, grid_size;
thread_local ThreadWarp* warp = nullptr;

void sync_warp() { warp->barrier.arrive_and_wait(); }

// Every lane's word, as `use` sees it.
template <class Use>
auto exchange(std::uint32_t word, Use use) {
  warp->words[thread_index.x % kGroupLanes] = word;
  sync_warp();
  const auto result = use(warp->words);
  sync_warp();
  return result;
}

std::uint32_t shuffle_xor(unsigned int, std::uint32_t word, int step) {
  return exchange(word, [=](const auto& words) { return words[thread_index.x % kGroupLanes ^ step]; });
}

int any_of_warp(unsigned int, bool flag) {
  return exchange(flag, [](const auto& words) { return std::ranges::count(words, 1u) > 0 ? 1 : 0; });
}

}  // namespace
}  // namespace qccl::kernels::device

#define __device__
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(threads, blocks)
#define threadIdx qccl::kernels::device::thread_index
#define blockIdx qccl::kernels::device::block_index
#define gridDim qccl::kernels::device::grid_size
#define __syncwarp qccl::kernels::device::sync_warp
#define __shfl_xor_sync qccl::kernels::device::shuffle_xor
#define __any_sync qccl::kernels::device::any_of_warp
#include "kernels/device/kernels.cu"

namespace qccl::kernels::device {
namespace {

using Kernel = void (*)(JobList);
constexpr std::array<Kernel, kEntries> kKernels = {qccl_own_type,  qccl_raw,  qccl_cast, qccl_minmax,
                                                   qccl_block_int, qccl_sign, qccl_grid, qccl_grid_forms};

// All threads of a block at once, block after block: they have the same memory here.
void launch(Entry program, const SliceJob& job, unsigned int blocks) {
  for (unsigned int block = 0; block < blocks; ++block) {
    std::vector<std::unique_ptr<ThreadWarp>> warps;
    for (int i = 0; i < kGroups; ++i) warps.push_back(std::make_unique<ThreadWarp>());
    std::vector<std::jthread> threads;
    for (unsigned int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        thread_index = {i};
        block_index = {block};
        grid_size = {blocks};
        warp = warps[i / kGroupLanes].get();
        kKernels[static_cast<std::size_t>(program)](list_of(&job, 1));
      });
    }
  }
}
void launch(const SliceJob& job, unsigned int blocks) {
  each_program(entry(job), {&job, 1}, [&](Entry program) { launch(program, job, blocks); });
}

class Warps : public ::testing::TestWithParam<PayloadFormat> {};

TEST_P(Warps, equal_the_hosts_kernels) {
  JobCase what{.wants_sum = true, .family = families_with_nonfinite()[16], .seed = 5, .shift = 1};
  what.job.count = 2500;
  what.job.format = GetParam();
  what.job.source_count = 2;
  what.job.sources[1].kind = SourceKind::payload;
  what.job.payload_count = 1;
  what.job.sources[0].adds_residual = true;  // a piece that is done twice is wrong
  what.job.keeps_residual = true;
  const JobMemory memory(what);
  const Written expected = by_reference([&] { return Oracle(memory.job()).run(); });
  launch(memory.job(), 2);
  EXPECT_TRUE(memory.written() == expected);
}

INSTANTIATE_TEST_SUITE_P(Formats, Warps,
                         ::testing::Values(PayloadFormat{},                                             //
                                           PayloadFormat{.kind = PayloadKind::bfloat16},                //
                                           PayloadFormat{PayloadKind::minmax, 4, false, false, 1024},   //
                                           PayloadFormat{PayloadKind::minmax, 3, true, false, 100},     //
                                           PayloadFormat{PayloadKind::minmax, 8, false, false, 2048},   //
                                           PayloadFormat{PayloadKind::block_int, 5, false, false, 32},  //
                                           PayloadFormat{PayloadKind::block_int, 8, true, false, 7},    //
                                           PayloadFormat{PayloadKind::sign, 1, false, false, 256},      //
                                           PayloadFormat{PayloadKind::sign, 1, false, false, 1000},     //
                                           PayloadFormat{PayloadKind::sign, 1, false, true, 24},        //
                                           PayloadFormat{.kind = PayloadKind::grid, .step = 1e-3f},     //
                                           PayloadFormat{.kind = PayloadKind::grid, .bucket = 2048, .step = 0.5f}));

TEST(WarpsOfOwnType, equal_the_hosts_kernels) {
  JobCase what{.shift = 3};
  what.job.type = DataType::int64;
  what.job.op = ReduceOp::min;
  what.job.count = 3000;
  what.job.source_count = 3;
  const JobMemory memory(what);
  launch(memory.job(), 1);
  EXPECT_TRUE(memory.written() == by_reference([&] { return Oracle(memory.job()).run(); }));
}

}  // namespace
}  // namespace qccl::kernels::device
