// QCCL through its C++ API as a contestant of bench/peers/compare. Compression and transport come from the environment.
// With --shared-buffers as the first argument, the buffers come from Communicator::allocate().
#include <qccl/qccl.h>

#include <cstring>

#include "sweep.h"

namespace {

struct State {
  qccl::Communicator world;
  std::shared_ptr<void> buffer;
};

qccl::Communicator& communicator(void* state) { return static_cast<State*>(state)->world; }

float* allocate(void* state, std::size_t bytes) {
  auto& buffer = static_cast<State*>(state)->buffer;
  buffer = communicator(state).allocate_bytes(bytes);
  return static_cast<float*>(buffer.get());
}

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
    const bool shared = argc > 1 && std::strcmp(argv[1], "--shared-buffers") == 0;
    State state{qccl::init(), nullptr};
    const contestant self = {
        &state,  state.world.rank(), state.world.size(),          barrier,
        maximum, all_reduce,         shared ? allocate : nullptr, state.world.compression().is_none() ? 0 : 0.02};
    const int code = sweep(&self, argc - (shared ? 1 : 0), argv + (shared ? 1 : 0));
    state.world.close();
    return code;
  } catch (const qccl::Error& error) {
    std::fprintf(stderr, "peers_qccl: %s\n", error.what());
    return 1;
  }
}
