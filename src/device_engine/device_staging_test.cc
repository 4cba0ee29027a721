// Calls on device memory on a machine without a driver. tests/gpu has those with one.
#include "device_engine/device_staging.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "base/expect_failure.h"

namespace qccl::engine {
namespace {

TEST(DeviceStaging, without_a_driver_calls_are_unsupported_in_the_loaders_words) {
  if (::dlopen("libcuda.so.1", RTLD_NOW) != nullptr) GTEST_SKIP() << "this machine has a GPU's driver";
  DeviceStaging staging(Options{});
  const UsedBuffer buffers[] = {{"input", nullptr, 0}};
  const auto kind = staging.kind_of({}, buffers);
  expect_failure(kind, ErrorKind::unsupported, "device memory needs NVIDIA's driver: libcuda.so.1: cannot open shared");
}

}  // namespace
}  // namespace qccl::engine
