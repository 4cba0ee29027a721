// A user's program: alone in its world, so that every reduction returns its input.
#include <qccl/qccl.h>

#include <cmath>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

namespace {

bool near(const std::vector<float>& got, const std::vector<float>& expected, float tolerance) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!(std::fabs(got[i] - expected[i]) <= tolerance)) {
      std::printf("element %zu is %g, not %g\n", i, got[i], expected[i]);
      return false;
    }
  }
  return got.size() == expected.size();
}

bool refuses_a_root_that_is_not_there(qccl::Communicator& comm) {
  std::vector<float> buffer(4);
  try {
    comm.broadcast(buffer, {.root = 7});
  } catch (const qccl::Error& error) {
    return error.kind() == qccl::ErrorKind::invalid_argument;
  }
  std::printf("broadcast from rank 7 of 1 did not fail\n");
  return false;
}

// It loads the driver, without which it says so; a driver does not know this memory.
bool refuses_a_stream_with_its_own_memory(qccl::Communicator& comm) {
  std::vector<float> buffer(4);
  try {
    comm.all_reduce(buffer, {.stream = qccl::DeviceStream{}});
  } catch (const qccl::Error& error) {
    const std::string_view message = error.what();
    const bool names_driver = message.find("libcuda.so.1: cannot open shared object file") != message.npos;
    const bool refused =
        error.kind() == qccl::ErrorKind::unsupported ? names_driver : message.find("driver") != message.npos;
    if (!refused) std::printf("%s\n", error.what());
    return refused;
  }
  std::printf("a call with a stream took a std::vector\n");
  return false;
}

}  // namespace

int main() {
  auto comm = qccl::init();
  std::vector<float> expected(1000);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<float>(i) / 8;

  auto gradient = expected;
  comm.all_reduce(gradient);
  bool ok = near(gradient, expected, 0);
  comm.all_reduce_async(std::span<float>(gradient), {.op = qccl::ReduceOp::avg}).wait();
  ok = near(gradient, expected, 0) && ok;
  comm.all_reduce(gradient, {.compression = qccl::minmax({.bits = 8})});
  ok = near(gradient, expected, 0.5f) && ok;  // 8 bits over [0, 125): half a unit is 0.245
  ok = refuses_a_root_that_is_not_there(comm) && ok;
  ok = refuses_a_stream_with_its_own_memory(comm) && ok;
  std::printf("qccl %s: %s\n", qccl::version(), comm.describe().c_str());
  comm.close();
  return ok && comm.size() == 1 ? 0 : 1;
}
