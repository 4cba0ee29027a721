// QCCL through its C++ API as a contestant of bench/peers. Compression and transport come from the environment.
#include <qccl/qccl.h>

#include "peers_sweep.h"

namespace {

qccl::Communicator& communicator(void* state) { return *static_cast<qccl::Communicator*>(state); }

void barrier(void* state) { communicator(state).barrier(); }

void maximum(void* state, double* values, std::size_t count) {
  communicator(state).all_reduce(values, values, count, qccl::DataType::float64, {.op = qccl::ReduceOp::max});
}

void all_reduce(void* state, float* buffer, std::size_t count) {
  communicator(state).all_reduce(buffer, buffer, count, qccl::DataType::float32);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    qccl::Communicator world = qccl::init();
    const contestant self = {&world, world.rank(), world.size(), barrier, maximum, all_reduce};
    const int code = sweep(&self, argc, argv);
    world.close();
    return code;
  } catch (const qccl::Error& error) {
    std::fprintf(stderr, "peers_qccl: %s\n", error.what());
    return 1;
  }
}
