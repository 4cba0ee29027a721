// A user's program: alone in its world, so that every reduction returns its input.
#include <qccl/qccl.h>

#include <cmath>
#include <cstdio>
#include <span>
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
  std::printf("qccl %s: %s\n", qccl::version(), comm.describe().c_str());
  comm.close();
  return ok && comm.size() == 1 ? 0 : 1;
}
