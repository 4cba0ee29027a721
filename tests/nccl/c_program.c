/* NCCL's interface from C: sizes and values of the ABI, and four ranks as threads that add in host memory.
 * c_program: exits with 0, or says what was wrong and exits with 1. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "nccl.h"

_Static_assert(sizeof(ncclUniqueId) == 128, "ncclUniqueId");
_Static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclRedOp_t) == 4 && sizeof(ncclDataType_t) == 4, "enumerations");
_Static_assert(offsetof(ncclConfig_t, blocking) == 16, "ncclConfig_t::blocking");
_Static_assert(offsetof(ncclConfig_t, netName) == 32, "ncclConfig_t::netName");
_Static_assert(offsetof(ncclConfig_t, commName) == 48, "ncclConfig_t::commName");
_Static_assert(sizeof(ncclConfig_t) == 80, "ncclConfig_t");

enum { kRanks = 4, kCount = 1000 };

struct Rank {
  int rank;
  ncclUniqueId id;
  const char* failure;
};

static const char* add_up(const struct Rank* self) {
  ncclComm_t comm = NULL;
  float values[kCount];
  int count = 0;
  int rank = -1;
  if (ncclCommInitRank(&comm, kRanks, self->id, self->rank) != ncclSuccess) return ncclGetLastError(NULL);
  if (ncclCommCount(comm, &count) != ncclSuccess || count != kRanks) return "ncclCommCount";
  if (ncclCommUserRank(comm, &rank) != ncclSuccess || rank != self->rank) return "ncclCommUserRank";
  for (int i = 0; i < kCount; ++i) values[i] = (float)(i * (self->rank + 1));
  if (ncclAllReduce(values, values, kCount, ncclFloat32, ncclSum, comm, NULL) != ncclSuccess) {
    return ncclGetLastError(comm);
  }
  if (ncclCommDestroy(comm) != ncclSuccess) return ncclGetLastError(NULL);
  for (int i = 0; i < kCount; ++i) {
    if (values[i] != (float)(i * (1 + 2 + 3 + 4))) return "a wrong sum";
  }
  return NULL;
}

static void* run(void* argument) {
  struct Rank* const self = argument;
  self->failure = add_up(self);
  if (self->failure != NULL) fprintf(stderr, "rank %d: %s\n", self->rank, self->failure);
  return NULL;
}

int main(void) {
  struct Rank ranks[kRanks];
  pthread_t threads[kRanks];
  int failures = 0;
  ncclUniqueId id;
  if (ncclGetUniqueId(&id) != ncclSuccess) {
    fprintf(stderr, "ncclGetUniqueId: %s\n", ncclGetLastError(NULL));
    return 1;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks[rank] = (struct Rank){.rank = rank, .id = id};
    if (pthread_create(&threads[rank], NULL, run, &ranks[rank]) != 0) return 1;
  }
  for (int rank = 0; rank < kRanks; ++rank) {
    pthread_join(threads[rank], NULL);
    failures += ranks[rank].failure != NULL;
  }
  return failures == 0 ? 0 : 1;
}
