// The tests of tests/gpu on this machine's GPU: build/tests/gpu_tests [GoogleTest's flags]
//
// Prints how each test ends; those that ask for what only the fake driver can do, such as a hazard, are left out with
// that as their reason. Exit 0; 1 if a test failed; 3 without a driver or a GPU.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "gpu_driver/program_driver.h"

namespace qccl::testing {
namespace {

// A test that was refused something by the driver has no result: what failed in it may follow from that.
class Results : public ::testing::EmptyTestEventListener {
 public:
  void OnTestSuiteStart(const ::testing::TestSuite& suite) override {
    std::printf("%s: %d tests\n", suite.name(), suite.test_to_run_count());
    std::fflush(stdout);
  }

  void OnTestEnd(const ::testing::TestInfo& test) override {
    const ::testing::TestResult& result = *test.result();
    const std::string name = std::string(test.test_suite_name()) + "." + test.name();
    if (result.Passed()) {
      ++passed_;
      return say("passed: " + name);
    }
    std::string messages;
    for (int i = 0; i < result.total_part_count(); ++i) {
      const ::testing::TestPartResult& part = result.GetTestPartResult(i);
      messages += std::string(part.file_name() == nullptr ? "" : part.file_name()) + ": " + part.message() + "\n";
    }
    const std::size_t refused = messages.find(kOnlyFake);
    if (result.Skipped() || refused != std::string::npos) {
      const std::size_t reason = refused == std::string::npos ? 0 : refused;
      ++left_out_;
      return say("left out: " + name + ": " + messages.substr(reason, messages.find('\n', reason) - reason));
    }
    ++failed_;
    say("FAILED: " + name + "\n" + messages);
  }

  // Prints the summary, and returns the exit code.
  int conclude() const {
    std::printf("gpu_tests: %d passed, %d failed, %d left out\n", passed_, failed_, left_out_);
    return failed_ == 0 && passed_ + left_out_ > 0 ? 0 : 1;
  }

 private:
  static void say(const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }

  int passed_ = 0;
  int failed_ = 0;
  int left_out_ = 0;
};

int run() {
  constexpr int kNoGpu = 3;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32",
         1);  // before the driver is loaded: tests hold streams and go on in others
  try {
    if (ProgramDriver::get().device_count() == 0) throw std::runtime_error("the driver has no device");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_tests: no GPU: %s\n", error.what());
    return kNoGpu;
  }
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* const results = new Results;
  listeners.Append(results);                                    // which owns it
  if (RUN_ALL_TESTS() == 0) std::printf("all tests passed\n");  // else those that were left out count as failed there
  return results->conclude();
}

}  // namespace
}  // namespace qccl::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return qccl::testing::run();
}
