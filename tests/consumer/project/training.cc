// A step of training with the installed qccl::extras, as a job of one rank.
#include <qccl/qccl.h>
#include <qccl/train.h>

#include <cstdio>
#include <vector>

int main() {
  qccl::InitOptions options;
  options.rank = 0;
  options.world = 1;
  std::vector<float> value(100, 1.0f), gradient(100, 2.0f);
  qccl::train::DataParallel model(qccl::init(options), {{"weight", value, gradient}});
  model.ready(0);
  model.finish();
  std::printf("gradient %g\n", static_cast<double>(gradient[99]));
  return gradient[99] == 2.0f ? 0 : 1;
}
