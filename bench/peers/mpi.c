/* An MPI as a contestant of bench/peers/compare, which compiles this once with each MPI's mpicc. */
#include <mpi.h>

#include "sweep.h"

static void barrier(void* state) {
  (void)state;
  MPI_Barrier(MPI_COMM_WORLD);
}

static void maximum(void* state, double* values, size_t count) {
  (void)state;
  MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

static void all_reduce(void* state, float* buffer, size_t count) {
  (void)state;
  MPI_Allreduce(MPI_IN_PLACE, buffer, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  struct contestant self = {NULL, 0, 0, barrier, maximum, all_reduce, NULL};
  MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &self.world);
  const int code = sweep(&self, argc, argv);
  MPI_Finalize();
  return code;
}
