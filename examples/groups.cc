// Groups by named dimensions, a pipeline of two stages and a sum of sparse tensors, on 8 ranks: 2 stages of 2
// data-parallel copies of 2 tensor-parallel parts. docs/groups.md explains it.
//
//   build/qccl run -n 8 -- build/examples/groups
#include <qccl/qccl.h>

#include <cstdio>
#include <exception>
#include <vector>

namespace {

// Averages a gradient over the data-parallel ranks and synchronizes all ranks of the pipeline stage.
void average_gradients(qccl::Mesh& mesh) {
  std::vector<float> gradient(1000, static_cast<float>(mesh.coordinate("dp")));
  mesh.group("dp").all_reduce(gradient, {.op = qccl::ReduceOp::avg});
  mesh.group("dp-tp").barrier();
  if (mesh.ranks().rank() == 0) std::printf("average gradient: %g\n", gradient[0]);
}

void run_pipeline(qccl::Mesh& mesh) {
  qccl::Pipeline pipeline(mesh.group("pp"), {.variable_shapes = true});
  qccl::Tensor input, gradient;
  if (!pipeline.recv_forward(input)) input = qccl::Tensor({4, 16});  // the first stage reads its own
  qccl::Tensor output = input;                                       // forward(input)
  for (float& x : output.values<float>()) x += 1;
  if (!pipeline.send_forward_recv_backward(output, gradient)) gradient = output;  // the last stage has the loss
  pipeline.send_backward(gradient);
  pipeline.broadcast_from_last(output);
  if (mesh.ranks().rank() == 0) std::printf("output of the last stage: %g\n", output.values<float>()[0]);
}

void add_embeddings(qccl::Communicator& world) {
  const std::vector<std::int64_t> rows{7, world.rank(), 7};  // any order, with duplicates
  const std::vector<float> values(rows.size() * 64, 1.0F);   // 64 a row
  const qccl::SparseTensor sum = qccl::sparse_all_reduce(
      world, {.sparse_sizes = {50'000}, .dense_sizes = {64}, .indices = rows, .values = values.data()});
  if (world.rank() == 0)
    std::printf("rows in the sum: %zu, row 7: %g\n", sum.elements(), sum.values_as<float>()[7 * 64]);
}

}  // namespace

int main() {
  try {
    qccl::Communicator world = qccl::init();
    qccl::Mesh mesh(world, {{"pp", 2}, {"dp", 2}, {"tp", 2}});
    average_gradients(mesh);
    run_pipeline(mesh);
    add_embeddings(world);
    world.close();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
