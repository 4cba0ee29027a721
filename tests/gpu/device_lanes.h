// A fixture whose devices have kernels, whether or not some are built in: the fake driver takes any image.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "device/kernel_images.h"
#include "gpu/both_memories.h"

namespace qccl::testing {

class DeviceLanes : public DeviceCalls {
 protected:
  // Short slices: a chunk has several of them, and kernels of PTX take long on the CPU.
  void SetUp() override {
    DeviceCalls::SetUp();
    setenv("QCCL_SLICE_BYTES", "32768", 1);
    if (device::built_in_kernels().empty()) {
      std::ofstream(image_) << "an image";
      setenv("QCCL_DEVICE_KERNELS", image_.c_str(), 1);
    }
    before_ = fake::launches();
    uses_before_ = fake::registered_uses();
  }
  void TearDown() override {
    unsetenv("QCCL_SLICE_BYTES");
    unsetenv("QCCL_DEVICE_KERNELS");
    std::remove(image_.c_str());
    DeviceCalls::TearDown();
  }
  bool has_launched() const { return fake::launches() > before_; }
  // Devices have read and written frames where they lie, in memory that ranks share.
  bool has_used_frames() const {
    const fake::RegisteredUses uses = fake::registered_uses();
    EXPECT_EQ(uses.read > uses_before_.read, uses.written > uses_before_.written);
    return uses.read > uses_before_.read;
  }
  bool is_shm() const { return GetParam() == TransportChoice::shm; }

 private:
  const std::string image_ = ::testing::TempDir() + "qccl_kernels_" + std::to_string(getpid());
  std::size_t before_ = 0;
  fake::RegisteredUses uses_before_;
};

}  // namespace qccl::testing
