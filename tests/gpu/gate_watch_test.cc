// The watch of gates, with an engine that makes rounds or does not.
#include "device_engine/gate_watch.h"

#include <atomic>
#include <thread>

#include "gpu/device_job.h"

namespace qccl::testing {
namespace {

constexpr engine::GateWatch::Patience kPatience{.interval = std::chrono::milliseconds(1), .looks = 5};
constexpr std::uint64_t kManyLooks = 20;

class WatchedGates : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::internal::CaptureStderr(); }
  void TearDown() override { EXPECT_EQ(fake::take_misuses(), std::vector<std::string>{}); }

  // Rounds of an engine that the watch has looked at so many times.
  std::uint64_t stands() {
    ++looks_;
    return 7;
  }
  std::uint64_t goes_on() { return ++looks_; }
  void await_looks() {
    const std::uint64_t now = looks_;
    while (looks_ < now + kManyLooks) std::this_thread::yield();
  }
  static std::string logged() { return ::testing::internal::GetCapturedStderr(); }

  const std::unique_ptr<device::Runtime> runtime_ = device::Runtime::open().take_or_throw();
  const std::unique_ptr<device::Gates> gates_ =
      device::Gates::open(*runtime_->device(0).take_or_throw()).take_or_throw();
  const ProgramStream stream_;
  std::atomic<std::uint64_t> looks_{0};
};

TEST_F(WatchedGates, open_if_the_engine_stands_still) {
  engine::GateWatch watch([this] { return stands(); }, kPatience);
  watch.add(*gates_);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(gates_->close(stream_.handle()).take_or_throw());
    fake::synchronize(stream_.handle());
    EXPECT_FALSE(gates_->any_closed());
  }
  const std::string text = logged();
  EXPECT_NE(text.find("streams go on without the results of calls"), std::string::npos) << text;
}

TEST_F(WatchedGates, stay_closed_while_the_engine_goes_on) {
  engine::GateWatch watch([this] { return goes_on(); }, kPatience);
  watch.add(*gates_);
  ASSERT_TRUE(gates_->close(stream_.handle()).take_or_throw());
  await_looks();
  EXPECT_TRUE(gates_->any_closed());
  gates_->open_all();
  EXPECT_EQ(logged(), "");
}

TEST_F(WatchedGates, that_are_open_need_no_engine) {
  engine::GateWatch watch([this] { return stands(); }, kPatience);
  watch.add(*gates_);
  await_looks();
  EXPECT_EQ(logged(), "");
}

}  // namespace
}  // namespace qccl::testing
