/* Splits, shrinking, and what a communicator says of itself. */
#include <limits.h>

#include "ranks.h"

static void sum_ranks(ncclComm_t* comms, const int* ranks, int count, int expected) {
  int sums[kMostRanks];
  OK(ncclGroupStart());
  for (int at = 0; at < count; ++at) {
    sums[at] = ranks[at];
    if (comms[at] != NULL) OK(ncclAllReduce(&sums[at], &sums[at], 1, ncclInt32, ncclSum, comms[at], NULL));
  }
  OK(ncclGroupEnd());
  for (int at = 0; at < count; ++at) CHECK(comms[at] == NULL || sums[at] == expected);
}

static void destroy_all(ncclComm_t* comms, int count) {
  for (int at = 0; at < count; ++at) OK(ncclCommDestroy(comms[at]));
}

/* Rank 0 is in none; the others are in one, in reverse order. */
void check_splits(struct Ranks* ranks) {
  ncclComm_t parts[kMostRanks];
  int numbers[kMostRanks];
  ALL(ranks, ncclCommSplit(comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 3, -rank, &parts[at], NULL));
  for (int at = 0; at < ranks->count; ++at) {
    const int rank = ranks->first + at;
    int size, own;
    numbers[at] = rank;
    CHECK((parts[at] == NULL) == (rank == 0));
    if (rank == 0) continue;
    OK(ncclCommCount(parts[at], &size));
    OK(ncclCommUserRank(parts[at], &own));
    CHECK(size == ranks->world - 1 && own == ranks->world - 1 - rank);
  }
  sum_ranks(parts, numbers, ranks->count, ranks->world * (ranks->world - 1) / 2);
  destroy_all(parts, ranks->count);

  /* The last rank is left out and does not call. */
  int excluded = ranks->world - 1;
  OK(ncclGroupStart());
  for (int at = 0; at < ranks->count; ++at) {
    parts[at] = NULL;
    if (ranks->first + at == excluded) continue;
    OK(ncclCommShrink(ranks->comms[at], &excluded, 1, &parts[at], NULL, NCCL_SHRINK_DEFAULT));
  }
  OK(ncclGroupEnd());
  sum_ranks(parts, numbers, ranks->count, (ranks->world - 1) * (ranks->world - 2) / 2);
  destroy_all(parts, ranks->count);
  IS(ncclInvalidArgument, ncclCommSplit(ranks->comms[0], -2, 0, &parts[0], NULL));
  IS(ncclInvalidArgument, ncclCommSplit(ranks->comms[0], 0, 0, NULL, NULL));
}

static void refuse_wrong_calls(struct Ranks* ranks, int at) {
  const ncclComm_t comm = ranks->comms[at];
  float in[4] = {1, 2, 3, 4}, out[4];
  IS(ncclInvalidArgument, ncclAllReduce(NULL, out, 1, ncclFloat32, ncclSum, comm, NULL));
  IS(ncclInvalidArgument, ncclAllReduce(in, NULL, 1, ncclFloat32, ncclSum, comm, NULL));
  IS(ncclInvalidArgument, ncclAllReduce(in, out, 1, ncclNumTypes, ncclSum, comm, NULL));
  IS(ncclInvalidArgument, ncclAllReduce(in, out, 1, (ncclDataType_t)-1, ncclSum, comm, NULL));
  IS(ncclInvalidArgument, ncclAllReduce(in, out, 1, ncclFloat32, (ncclRedOp_t)77, comm, NULL));
  IS(ncclInvalidArgument, ncclAllReduce(in, out, 1, ncclFloat32, (ncclRedOp_t)-1, comm, NULL));
  IS(ncclInvalidArgument, ncclAllReduce(in, out, 1, ncclFloat32, ncclSum, NULL, NULL));
  IS(ncclInvalidArgument, ncclReduce(in, out, 1, ncclFloat32, ncclSum, ranks->world, comm, NULL));
  IS(ncclInvalidArgument, ncclReduce(in, out, 1, ncclFloat32, ncclSum, -1, comm, NULL));
  IS(ncclInvalidArgument, ncclBroadcast(in, out, 1, ncclFloat32, ranks->world, comm, NULL));
  IS(ncclInvalidArgument, ncclSend(in, 1, ncclFloat32, ranks->world, comm, NULL));
  IS(ncclInvalidArgument, ncclRecv(out, 1, ncclFloat32, -1, comm, NULL));
  IS(ncclInvalidUsage, ncclGroupEnd());
  /* A wrong call in a group: none of its calls runs, and the end says what was wrong. */
  OK(ncclGroupStart());
  OK(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, comm, NULL));
  IS(ncclInvalidArgument, ncclBcast(in, 1, ncclFloat32, 99, comm, NULL));
  IS(ncclInvalidArgument, ncclGroupEnd());
  /* It goes on afterwards: check_queries() ends with a sum. */
}

void check_queries(struct Ranks* ranks) {
  int numbers[kMostRanks], version = 0;
  void* memory = NULL;
  void* handle = NULL;
  OK(ncclGetVersion(&version));
  CHECK(version == 22809);
  for (int at = 0; at < ranks->count; ++at) {
    int size = 0, own = -1, device = -1;
    ncclResult_t state = ncclInternalError;
    numbers[at] = ranks->first + at;
    OK(ncclCommCount(ranks->comms[at], &size));
    OK(ncclCommUserRank(ranks->comms[at], &own));
    OK(ncclCommCuDevice(ranks->comms[at], &device));
    OK(ncclCommGetAsyncError(ranks->comms[at], &state));
    CHECK(size == ranks->world && own == ranks->first + at && device >= 0 && state == ncclSuccess);
    refuse_wrong_calls(ranks, at);
  }
  OK(ncclMemAlloc(&memory, 1000));
  OK(ncclCommRegister(ranks->comms[0], memory, 1000, &handle));
  OK(ncclCommDeregister(ranks->comms[0], handle));
  OK(ncclMemFree(memory));
  IS(ncclInvalidArgument, ncclMemFree(memory));
  IS(ncclInvalidUsage, ncclCommMemStats(ranks->comms[0], 0, NULL));
  CHECK(strlen(ncclGetLastError(NULL)) > 20);
  IS(ncclInvalidUsage, ncclCommSuspend(ranks->comms[0], 1));
  IS(ncclInvalidUsage, ncclCommResume(ranks->comms[0]));
  IS(ncclInvalidUsage, ncclCommWindowRegister(ranks->comms[0], numbers, 4, NULL, 0));
  IS(ncclInvalidUsage, ncclSignal(0, 0, 0, 0, ranks->comms[0], NULL));
  for (ncclResult_t each = ncclSuccess; each < ncclNumResults; each = (ncclResult_t)(each + 1)) {
    CHECK(strlen(ncclGetErrorString(each)) > 4);
  }
  sum_ranks(ranks->comms, numbers, ranks->count, ranks->world * (ranks->world - 1) / 2);
}
