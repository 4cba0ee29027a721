// Gates over the fake driver, and over one with each hazard that gates have.
#include "device/gates.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "base/expect_failure.h"
#include "support/fake_cuda/fake_cuda.h"

namespace qccl::device {
namespace {

using fake::Hazard;

class GatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    runtime_ = Runtime::open().take_or_throw();
    device_ = runtime_->device(0).take_or_throw();
  }
  void TearDown() override {
    fake::set_queues(fake::queues_of_environment());
    for (const Hazard each : fake::kHazards) fake::set_hazard(each, false);
    EXPECT_EQ(fake::take_misuses(), std::vector<std::string>{});
    EXPECT_EQ(fake::live_objects(), 0u);
  }

  std::unique_ptr<Runtime> runtime_;
  Device* device_ = nullptr;
};

TEST_F(GatesTest, a_stream_waits_until_its_gate_is_opened) {
  const auto gates = Gates::open(*device_).take_or_throw();
  CUstream_st* const stream = fake::make_stream();
  const auto event = Event::create(*device_).take_or_throw();
  std::atomic<int> passed{0};
  std::vector<Gate> closed;
  for (int i = 0; i < 3; ++i) {
    closed.push_back(gates->close(stream).take_or_throw().value());
    fake::enqueue(stream, [&] { ++passed; });
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(passed, i);
    EXPECT_TRUE(gates->any_closed());
    ASSERT_TRUE(gates->open(closed[static_cast<std::size_t>(i)]));
    while (passed == i) std::this_thread::yield();
  }
  EXPECT_FALSE(gates->any_closed());
  fake::destroy(stream);
}

TEST_F(GatesTest, a_gate_that_was_opened_with_all_is_not_opened_again) {
  const auto gates = Gates::open(*device_).take_or_throw();
  CUstream_st* const stream = fake::make_stream();
  const Gate first = gates->close(stream).take_or_throw().value();
  gates->open_all();
  const Gate second = gates->close(stream).take_or_throw().value();
  EXPECT_EQ(second.word, first.word);
  EXPECT_FALSE(gates->open(first));
  EXPECT_TRUE(gates->any_closed());
  EXPECT_TRUE(gates->open(second));
  fake::destroy(stream);
}

TEST_F(GatesTest, as_many_as_there_are_words_are_closed) {
  const auto gates = Gates::open(*device_).take_or_throw();
  CUstream_st* const stream = fake::make_stream();
  std::size_t closed = 0;
  while (gates->close(stream).take_or_throw()) ++closed;
  EXPECT_EQ(closed, 1024u);
  gates->open_all();
  EXPECT_TRUE(gates->close(stream).take_or_throw());
  gates->open_all();
  fake::destroy(stream);
}

TEST_F(GatesTest, a_driver_that_refuses_leaves_no_gate_closed) {
  const auto gates = Gates::open(*device_).take_or_throw();
  CUstream_st* const stream = fake::make_stream();
  fake::fail("cuStreamWaitValue32", Code::invalid_value);
  expect_failure(gates->close(stream), ErrorKind::invalid_argument, "cuStreamWaitValue32");
  EXPECT_FALSE(gates->any_closed());
  fake::destroy(stream);
}

TEST_F(GatesTest, are_tried_beside_a_stream_of_the_programs_that_waits_for_the_program) {
  CUstream_st* const program = fake::make_stream();
  fake::hold(program);
  fake::enqueue(program, [] {});
  const auto gates = Gates::open(*device_).take_or_throw();
  EXPECT_TRUE(gates->try_out().ok());
  fake::release(program);
  fake::destroy(program);
}

TEST_F(GatesTest, streams_of_a_single_queue_have_none) {
  fake::set_queues(1);
  expect_failure(Gates::open(*device_).take_or_throw()->try_out(), ErrorKind::unsupported, "they share a queue");
}

TEST_F(GatesTest, a_trial_passes_where_another_thread_makes_streams_meanwhile) {
  fake::set_queues(2);
  for (int round = 0; round < 50; ++round) {
    const auto gates = Gates::open(*device_).take_or_throw();
    std::barrier<> start(2);
    std::jthread other([&] {
      std::vector<std::unique_ptr<Stream>> streams;
      start.arrive_and_wait();
      while (streams.size() < 3) streams.push_back(Stream::create(*device_).take_or_throw());
    });
    start.arrive_and_wait();
    EXPECT_TRUE(gates->try_out().ok());
  }
}

TEST_F(GatesTest, a_driver_whose_calls_wait_for_one_that_frees_memory_has_none) {
  fake::set_hazard(Hazard::locking_free, true);
  expect_failure(Gates::open(*device_).take_or_throw()->try_out(), ErrorKind::unsupported,
                 "wait for a thread that frees memory");
}

TEST_F(GatesTest, streams_that_do_not_see_that_they_may_go_on_have_none) {
  fake::set_hazard(Hazard::late_stream, true);
  const auto gates = Gates::open(*device_).take_or_throw();
  expect_failure(gates->try_out(), ErrorKind::unsupported, "the host let it go on, and a second later it still waited");
  fake::set_hazard(Hazard::late_stream, false);
}

// With so many queues, one for the library's stream.
TEST_F(GatesTest, as_many_streams_wait_as_have_no_queue_of_the_librarys) {
  for (const std::size_t queues : {2u, 8u, 32u}) {
    fake::set_queues(queues);
    const auto gates = Gates::open(*device_).take_or_throw();
    const auto own = Stream::create(*device_).take_or_throw();
    const GoingStream going(*device_, *own);
    std::vector<CUstream_st*> streams;
    std::size_t waiting = 0;
    for (std::size_t i = 0; i < 2 * queues; ++i) {
      streams.push_back(fake::make_stream());
      if (gates->close(streams.back()).take_or_throw()) ++waiting;
    }
    EXPECT_EQ(waiting, 2 * (queues - 1));
    const auto event = Event::create(*device_).take_or_throw();
    event->record(own->handle()).take_or_throw();
    while (!event->has_happened().take_or_throw()) std::this_thread::yield();
    gates->open_all();
    for (CUstream_st* const each : streams) fake::destroy(each);
  }
}

TEST_F(GatesTest, a_stream_is_tried_again_when_the_library_has_another_one) {
  const auto gates = Gates::open(*device_).take_or_throw();
  CUstream_st* const stream = fake::make_stream();
  const Gate gate = gates->close(stream).take_or_throw().value();
  ASSERT_TRUE(gates->open(gate));
  fake::set_queues(1);
  const auto own = Stream::create(*device_).take_or_throw();
  CUstream_st* const beside = fake::make_stream();
  {
    const GoingStream going(*device_, *own);
    EXPECT_TRUE(gates->close(stream).take_or_throw()) << "it has another queue";
    gates->open_all();
    EXPECT_FALSE(gates->close(beside).take_or_throw());
    EXPECT_FALSE(gates->close(beside).take_or_throw());
  }
  for (CUstream_st* const each : {stream, beside}) fake::destroy(each);
}

TEST_F(GatesTest, no_more_streams_are_tried_after_eight_that_hold_up_the_librarys) {
  const auto gates = Gates::open(*device_).take_or_throw();
  fake::set_queues(1);
  const auto own = Stream::create(*device_).take_or_throw();
  const GoingStream going(*device_, *own);
  std::vector<CUstream_st*> streams;
  for (int i = 0; i < 9; ++i) {
    if (i == 8) fake::set_queues(32);
    streams.push_back(fake::make_stream());
    EXPECT_FALSE(gates->close(streams.back()).take_or_throw());
  }
  for (CUstream_st* const each : streams) fake::destroy(each);
}

TEST_F(GatesTest, that_end_let_their_streams_go_on) {
  auto gates = Gates::open(*device_).take_or_throw();
  CUstream_st* const stream = fake::make_stream();
  ASSERT_TRUE(gates->close(stream).take_or_throw());
  gates.reset();
  fake::synchronize(stream);
  fake::destroy(stream);
}

TEST_F(GatesTest, are_counted_as_they_are_opened) {
  const auto gates = Gates::open(*device_).take_or_throw();
  CUstream_st* const stream = fake::make_stream();
  const std::uint64_t before = gates->opened();
  const Gate first = gates->close(stream).take_or_throw().value();
  ASSERT_TRUE(gates->close(stream).take_or_throw());
  EXPECT_EQ(gates->opened(), before);
  EXPECT_TRUE(gates->open(first));
  EXPECT_FALSE(gates->open(first));
  EXPECT_EQ(gates->opened(), before + 1);
  gates->open_all();
  EXPECT_EQ(gates->opened(), before + 2);
  fake::destroy(stream);
}

}  // namespace
}  // namespace qccl::device
