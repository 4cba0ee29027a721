// The tests of tests/gpu on this machine's GPU: build/tests/gpu_tests [GoogleTest's flags]
//
// Prints what fails, and at the end the tests that were left out because they ask for what only the fake driver can do,
// such as a failure on order. Exit 0; 1 if a test failed; 3 without a driver or a GPU.
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
    if (result.Passed()) return ++passed_, void();
    std::string messages;
    for (int i = 0; i < result.total_part_count(); ++i) {
      const ::testing::TestPartResult& part = result.GetTestPartResult(i);
      messages += std::string(part.file_name() == nullptr ? "" : part.file_name()) + ": " + part.message() + "\n";
    }
    if (result.Skipped() || messages.find(kOnlyFake) != std::string::npos) return left_out_.push_back(name);
    ++failed_;
    std::printf("FAILED: %s\n%s", name.c_str(), messages.c_str());
    std::fflush(stdout);
  }

  // Prints the summary, and returns the exit code.
  int conclude() const {
    for (const std::string& name : left_out_) std::printf("left out: %s\n", name.c_str());
    std::printf("gpu_tests: %d passed, %d failed, %zu left out: only the fake driver can do what they ask for\n",
                passed_, failed_, left_out_.size());
    return failed_ == 0 && passed_ > 0 ? 0 : 1;
  }

 private:
  int passed_ = 0;
  int failed_ = 0;
  std::vector<std::string> left_out_;
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
