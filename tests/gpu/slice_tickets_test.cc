// Jobs of a lane's slices: those of one slice follow one another, those of different slices share a launch.
#include "device_engine/lanes/slice_tickets.h"

#include <gtest/gtest.h>

#include "support/error_of.h"
#include "support/fake_cuda/fake_cuda.h"

namespace qccl::engine {
namespace {

constexpr device::KernelImages kImages{"cubins", "ptx", 11, "90"};  // the fake takes anything

TEST(SliceTickets, a_job_that_overwrites_what_an_earlier_one_of_its_slice_reads_is_launched_behind_it) {
  const auto runtime = device::Runtime::open().take_or_throw();
  device::Device* const device = runtime->device(0).take_or_throw();
  const auto stream = device::Stream::create(*device).take_or_throw();
  const auto kernels = device::Kernels::load(*device, kImages).take_or_throw();
  const auto pinned = device::PinnedMemory::allocate(*device, 64 * sizeof(float)).take_or_throw();
  auto* const values = reinterpret_cast<float*>(pinned->data());
  DeviceJobs jobs({kernels.get(), device, stream.get()});
  SliceTickets tickets(2);
  tickets.begin(jobs);

  const auto move = [](const float* from, float* to) {
    kernels::device::SliceJob job{.count = 16, .source_count = 1, .moves = true};
    job.sources[0].data = from;
    job.output = to;
    return job;
  };
  const std::size_t before = device::fake::launches();
  tickets.begin_slice(0);
  tickets.add(move(values, values + 16));
  tickets.add(move(values + 32, values));
  tickets.begin_slice(1);
  tickets.add(move(values + 32, values + 48));
  jobs.submit().take_or_throw();
  EXPECT_EQ(device::fake::launches() - before, 2u);
  while (!jobs.is_idle()) jobs.look().take_or_throw();
  EXPECT_EQ(device::fake::take_misuses(), std::vector<std::string>{});
}

TEST(SliceTickets, each_call_begins_at_its_first_slice) {
  DeviceJobs jobs({});
  SliceTickets tickets(2);
  for (int call = 0; call < 2; ++call) {
    tickets.begin(jobs);
    for (std::uint64_t slice = 0; slice < 5; ++slice) {
      EXPECT_TRUE(tickets.has_place(slice));
      tickets.begin_slice(slice);
    }
    EXPECT_EQ(tickets.slice(), 4u);
  }
}

}  // namespace
}  // namespace qccl::engine
