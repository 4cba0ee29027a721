// Devices over the fake driver, which every test leaves without misuse.
#include "device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "base/expect_failure.h"
#include "device/registered_memory.h"
#include "support/fake_cuda/fake_cuda.h"

namespace qccl::device {
namespace {

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    runtime_ = Runtime::open().take_or_throw();
    device_ = runtime_->device(0).take_or_throw();
  }
  void TearDown() override { EXPECT_EQ(fake::take_misuses(), std::vector<std::string>{}); }

  static void wait_for(const Event& event) {
    while (!event.has_happened().take_or_throw()) std::this_thread::yield();
  }

  std::unique_ptr<Runtime> runtime_;
  Device* device_ = nullptr;
};

TEST_F(DeviceTest, a_runtime_counts_and_names_its_devices) {
  EXPECT_EQ(runtime_->device_count(), fake::kDevices);
  EXPECT_EQ(runtime_->driver_version(), "12.0");
  const Traits traits = runtime_->traits(1).take_or_throw();
  EXPECT_EQ(traits.name, "Fake device 1");
  EXPECT_EQ(std::pair(traits.compute_major, traits.compute_minor), std::pair(9, 0));
  EXPECT_EQ(traits.multiprocessors, 4);
  EXPECT_EQ(traits.memory_bytes, std::size_t{16} << 30);
  EXPECT_EQ(runtime_->device(1).take_or_throw()->index(), 1);
  EXPECT_EQ(runtime_->device(0).take_or_throw(), device_);
}

TEST_F(DeviceTest, a_device_that_is_not_there_is_refused_with_the_number_of_those_that_are) {
  for (const int index : {-1, fake::kDevices}) {
    const auto refused = runtime_->device(index);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid_argument);
    EXPECT_NE(refused.error().message.find("sees 2"), std::string::npos) << refused.error().message;
  }
}

TEST_F(DeviceTest, copies_go_to_pinned_memory_and_back_and_events_say_when) {
  constexpr std::size_t kBytes = 10'000;
  const auto stream = Stream::create(*device_).take_or_throw();
  const auto event = Event::create(*device_).take_or_throw();
  const auto pinned = PinnedMemory::allocate(*device_, kBytes).take_or_throw();
  auto* const memory = static_cast<std::byte*>(fake::allocate(fake::Kind::device, kBytes));
  std::memset(pinned->data(), 7, kBytes);
  stream->copy_to_device(memory, pinned->data(), kBytes).take_or_throw();
  stream->copy_to_host(pinned->data() + 10, memory + 20, 100).take_or_throw();
  event->record(stream->handle()).take_or_throw();
  wait_for(*event);
  EXPECT_EQ(pinned->data()[10], std::byte{7});
  std::vector<std::byte> seen(kBytes);
  fake::read(nullptr, memory, seen.data(), kBytes);
  EXPECT_EQ(seen, std::vector<std::byte>(kBytes, std::byte{7}));
  fake::free(memory);
}

TEST_F(DeviceTest, memory_of_a_device_is_copied_on_it_and_counted) {
  constexpr std::size_t kBytes = 10'000;
  const auto stream = Stream::create(*device_).take_or_throw();
  const auto pinned = PinnedMemory::allocate(*device_, kBytes).take_or_throw();
  const std::size_t free = device_->free_bytes().take_or_throw();
  const auto source = DeviceMemory::allocate(*device_, kBytes).take_or_throw();
  const auto target = DeviceMemory::allocate(*device_, kBytes).take_or_throw();
  EXPECT_EQ(device_->free_bytes().take_or_throw(), free - 2 * kBytes);
  EXPECT_EQ(device_->place_of(target->data()).take_or_throw().type, MemoryType::device);
  std::memset(pinned->data(), 7, kBytes);
  stream->copy_to_device(source->data(), pinned->data(), kBytes).take_or_throw();
  stream->copy_on_device(target->data() + 1, source->data(), kBytes - 1).take_or_throw();
  std::vector<std::byte> seen(kBytes);
  fake::read(stream->handle(), target->data(), seen.data(), kBytes);
  EXPECT_EQ(seen[0], fake::kPoison);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), std::byte{7}), std::ptrdiff_t{kBytes - 1});
  expect_failure(DeviceMemory::allocate(*device_, free), ErrorKind::resource_exhausted, "device 0: cuMemAlloc");
}

TEST_F(DeviceTest, registered_memory_is_pinned_until_the_registration_ends) {
  constexpr std::size_t kBytes = 4096;
  std::vector<std::byte> own(kBytes, std::byte{3});
  const auto type = [&] { return device_->place_of(own.data() + 100).take_or_throw().type; };
  {
    const auto registration = Registration::make(*device_, own.data(), kBytes).take_or_throw();
    EXPECT_EQ(type(), MemoryType::host);
    expect_failure(Registration::make(*device_, own.data() + 10, 10), ErrorKind::aborted, "ALREADY_REGISTERED");
  }
  EXPECT_EQ(type(), MemoryType::unknown);
  EXPECT_EQ(own, std::vector<std::byte>(kBytes, std::byte{3}));
  fake::fail("cuMemHostRegister", Code::out_of_memory);
  expect_failure(Registration::make(*device_, own.data(), kBytes), ErrorKind::resource_exhausted, "cuMemHostRegister");
}

// The fake's devices have registered memory elsewhere than the host.
TEST_F(DeviceTest, registered_memory_has_an_address_on_the_device_and_is_kept_mapped) {
  const auto memory = std::make_shared<std::array<std::byte, 4096>>();
  const std::weak_ptr<const void> alive = memory;
  const auto part = [&](std::size_t from, std::size_t bytes) { return Bytes(memory->data() + from, bytes); };
  RegisteredMemory registered;
  EXPECT_TRUE(registered.on(*device_).take_or_throw().empty());
  for (const std::size_t from : {2000u, 1000u}) registered.add(*device_, memory, part(from, 500)).take_or_throw();
  const ReachedMemory reached = registered.on(*device_).take_or_throw();
  for (const auto& [from, bytes, is_in] : {std::tuple(1000, 500, true),
                                           {1499, 1, true},
                                           {2000, 0, true},
                                           {2100, 400, true},
                                           {999, 2, false},
                                           {1499, 2, false},
                                           {1600, 1, false},
                                           {2499, 2, false},
                                           {3000, 1, false}}) {
    const Bytes bytes_there = part(static_cast<std::size_t>(from), static_cast<std::size_t>(bytes));
    const std::byte* const address = reached.find(bytes_there);
    EXPECT_EQ(address != nullptr, is_in) << from << " " << bytes;
    EXPECT_NE(address, bytes_there.data());
  }
  EXPECT_EQ(reached.find(part(2100, 1)) - reached.find(part(2000, 1)), 100);
  EXPECT_EQ(alive.use_count(), 3);
  registered.clear();
  EXPECT_EQ(alive.use_count(), 1);
}

TEST_F(DeviceTest, registered_memory_without_an_address_on_the_device_is_a_failure) {
  std::array<std::byte, 4096> memory{};
  RegisteredMemory registered;
  registered.add(*device_, nullptr, memory).take_or_throw();
  fake::fail("cuMemHostGetDevicePointer", Code::invalid_value);
  expect_failure(registered.on(*device_), ErrorKind::invalid_argument, "device 0: cuMemHostGetDevicePointer");
}

TEST_F(DeviceTest, null_is_the_default_stream_of_the_device_of_the_event) {
  Device* const other = runtime_->device(1).take_or_throw();
  const auto event = Event::create(*other).take_or_throw();
  fake::hold(fake::default_stream(1));
  event->record(nullptr).take_or_throw();
  EXPECT_FALSE(event->has_happened().take_or_throw());
  fake::release(fake::default_stream(1));
  wait_for(*event);
}

TEST_F(DeviceTest, an_event_happens_when_the_work_before_it_has_ended) {
  CUstream_st* const program = fake::make_stream();
  const auto event = Event::create(*device_).take_or_throw();
  EXPECT_TRUE(event->has_happened().take_or_throw());
  fake::hold(program);
  event->record(program).take_or_throw();
  EXPECT_FALSE(event->has_happened().take_or_throw());
  fake::release(program);
  wait_for(*event);
  fake::destroy(program);
}

TEST_F(DeviceTest, memory_is_known_by_its_kind_and_device) {
  std::vector<float> own(10);
  void* const device_memory = fake::allocate(fake::Kind::device, 100, 1);
  void* const managed = fake::allocate(fake::Kind::managed, 100);
  const auto pinned = PinnedMemory::allocate(*device_, 100).take_or_throw();
  const auto place_of = [&](const void* memory) { return device_->place_of(memory).take_or_throw(); };
  EXPECT_EQ(place_of(own.data()).type, MemoryType::unknown);
  EXPECT_EQ(place_of(pinned->data()).type, MemoryType::host);
  EXPECT_EQ(place_of(static_cast<std::byte*>(device_memory) + 99).type, MemoryType::device);
  EXPECT_EQ(place_of(device_memory).device, 1);
  EXPECT_FALSE(place_of(device_memory).is_managed);
  EXPECT_TRUE(place_of(managed).is_managed);
  fake::free(device_memory);
  fake::free(managed);
}

TEST_F(DeviceTest, a_stream_in_capture_is_refused) {
  CUstream_st* const program = fake::make_stream();
  EXPECT_TRUE(check_not_capturing(*device_, program).ok());
  fake::capture(program, true);
  expect_failure(check_not_capturing(*device_, program), ErrorKind::unsupported, "CUDA graph");
  fake::destroy(program);
}

// cuStreamIsCapturing() is a failure then: the default stream waits for the one that is captured.
TEST_F(DeviceTest, the_default_stream_is_refused_while_another_one_of_its_device_is_captured) {
  CUstream_st* const program = fake::make_stream();
  fake::capture(program, true);
  expect_failure(check_not_capturing(*device_, nullptr), ErrorKind::unsupported, "CUDA graph");
  EXPECT_TRUE(check_not_capturing(*runtime_->device(1).take_or_throw(), nullptr).ok());
  fake::capture(program, false);
  EXPECT_TRUE(check_not_capturing(*device_, nullptr).ok());
  fake::destroy(program);
}

TEST_F(DeviceTest, failures_name_the_device_the_function_and_the_reason) {
  fake::fail("cuMemHostAlloc", Code::out_of_memory);
  expect_failure(PinnedMemory::allocate(*device_, 100), ErrorKind::resource_exhausted,
                 "device 0: cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY");
  fake::fail("cuEventQuery", static_cast<Code>(700));
  const auto event = Event::create(*device_).take_or_throw();
  expect_failure(event->has_happened(), ErrorKind::aborted, "device 0: cuEventQuery: error 700");
}

TEST_F(DeviceTest, a_driver_that_finds_no_device_is_unsupported_in_its_own_words) {
  fake::fail("cuInit", Code::no_device);
  expect_failure(load_driver(), ErrorKind::unsupported,
                 "no CUDA-capable device is detected); see whether nvidia-smi lists a GPU");
}

TEST_F(DeviceTest, everything_is_given_back) {
  const std::size_t before = fake::live_objects();
  {
    const auto stream = Stream::create(*device_).take_or_throw();
    const auto event = Event::create(*device_).take_or_throw();
    const auto pinned = PinnedMemory::allocate(*device_, 100).take_or_throw();
    const auto memory = DeviceMemory::allocate(*device_, 100).take_or_throw();
    EXPECT_EQ(fake::live_objects(), before + 4);
  }
  EXPECT_EQ(fake::live_objects(), before);
}

// ---- what the fake has as hardware does

TEST_F(DeviceTest, streams_share_queues_in_turn_and_an_item_waits_for_all_before_it_in_its_queue) {
  for (const std::size_t queues : {1u, 2u, 8u, 32u}) {
    fake::set_queues(queues);
    std::vector<CUstream_st*> streams;
    for (std::size_t i = 0; i <= queues; ++i) streams.push_back(fake::make_stream());
    fake::hold(streams[0]);
    std::vector<std::atomic<bool>> have_run(queues + 1);
    for (std::size_t i = 0; i <= queues; ++i) fake::enqueue(streams[i], [&, i] { have_run[i] = true; });
    for (std::size_t i = 1; i < queues; ++i) fake::synchronize(streams[i]);
    EXPECT_EQ(std::ranges::count_if(have_run, [](const auto& each) { return each.load(); }),
              static_cast<std::ptrdiff_t>(queues - 1));
    fake::release(streams[0]);
    fake::synchronize(streams[queues]);
    for (CUstream_st* const each : streams) fake::destroy(each);
  }
  fake::set_queues(fake::queues_of_environment());
}

TEST_F(DeviceTest, memory_is_freed_when_all_streams_of_its_device_have_come_there) {
  std::vector<std::byte> own(100);
  std::vector<std::function<void()>> free;
  const auto later = [&](auto memory) {
    free.emplace_back([kept = std::make_shared<decltype(memory)>(std::move(memory))] { kept->reset(); });
  };
  later(DeviceMemory::allocate(*device_, 100).take_or_throw());
  later(PinnedMemory::allocate(*device_, 100).take_or_throw());
  later(Registration::make(*device_, own.data(), own.size()).take_or_throw());
  CUstream_st* const elsewhere = fake::make_stream(1);
  fake::hold(elsewhere);
  fake::enqueue(elsewhere, [] {});
  for (const auto& each : free) {
    CUstream_st* const program = fake::make_stream();
    std::atomic<bool> has_run{false};
    std::atomic<bool> frees{false};
    fake::hold(program);
    fake::enqueue(program, [&] { has_run = true; });
    std::thread freeing([&] {
      frees = true;
      each();
      EXPECT_TRUE(has_run);
    });
    while (!frees) std::this_thread::yield();
    fake::release(program);
    freeing.join();
    fake::destroy(program);
  }
  fake::destroy(elsewhere);
}

TEST_F(DeviceTest, after_a_fault_every_call_of_the_context_fails_with_it_and_everything_is_still_given_back) {
  constexpr auto kIllegalAddress = static_cast<Code>(700);
  const std::size_t before = fake::live_objects();
  {
    const auto stream = Stream::create(*device_).take_or_throw();
    const auto event = Event::create(*device_).take_or_throw();
    const auto pinned = PinnedMemory::allocate(*device_, 100).take_or_throw();
    const auto memory = DeviceMemory::allocate(*device_, 100).take_or_throw();
    std::atomic<bool> has_run{false};
    fake::hold(stream->handle());
    fake::enqueue(stream->handle(), [&] { has_run = true; });
    event->record(stream->handle()).take_or_throw();
    fake::fault(0, kIllegalAddress);
    fake::release(stream->handle());
    fake::synchronize(stream->handle());
    EXPECT_FALSE(has_run);
    for (int i = 0; i < 2; ++i) {
      expect_failure(event->has_happened(), ErrorKind::aborted, "device 0: cuEventQuery: error 700");
      expect_failure(event->record(stream->handle()), ErrorKind::aborted, "cuEventRecord: error 700");
      expect_failure(stream->fill(memory->data(), std::byte{0}, 1), ErrorKind::aborted, "cuMemsetD8Async: error 700");
      expect_failure(Stream::create(*device_), ErrorKind::aborted, "error 700");
      expect_failure(DeviceMemory::allocate(*device_, 100), ErrorKind::aborted, "cuMemAlloc: error 700");
      expect_failure(device_->place_of(memory->data()), ErrorKind::aborted, "error 700");
      expect_failure(check_not_capturing(*device_, nullptr), ErrorKind::aborted, "error 700");
    }
    EXPECT_TRUE(Stream::create(*runtime_->device(1).take_or_throw()).ok());
  }
  EXPECT_EQ(fake::live_objects(), before);
  fake::repair(0);
  EXPECT_TRUE(Stream::create(*device_).ok());
}

// The fake notes what a real driver would not forgive.
TEST(FakeDriver, misuse_is_noted) {
  const Driver driver = load_driver().take_or_throw();
  CUevent_st* event = nullptr;
  EXPECT_EQ(driver.event_create(&event, 0), Code::invalid_context);
  CUctx_st* context = nullptr;
  driver.device_primary_ctx_retain(&context, 0);
  driver.ctx_push_current(context);
  driver.event_create(&event, 0);
  driver.event_destroy(event);
  EXPECT_NE(driver.event_query(event), Code::success);
  std::byte own[8]{};
  EXPECT_NE(driver.memcpy_dtoh_async(own, reinterpret_cast<DevicePointer>(own), 8, nullptr), Code::success);
  driver.ctx_pop_current(&context);
  const std::vector<std::string> expected = {"cuEventCreate without a context", "cuEventQuery of no event",
                                             "cuMemcpyDtoHAsync with memory that is not the device's"};
  EXPECT_EQ(fake::take_misuses(), expected);
}

}  // namespace
}  // namespace qccl::device
