/* Ranks of one communicator that live in this process, and the checks of what NCCL's documentation promises. */
#ifndef QCCL_TESTS_NCCL_RANKS_H
#define QCCL_TESTS_NCCL_RANKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nccl.h>

enum { kMostRanks = 4 };

/* The ranks `first`, `first + 1`, ... of `world`. */
struct Ranks {
  int first;
  int count;
  int world;
  ncclComm_t comms[kMostRanks];
};

#define CHECK(condition)                                                                                   \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      fprintf(stderr, "%s:%d: %s is false; %s\n", __FILE__, __LINE__, #condition, ncclGetLastError(NULL)); \
      exit(1);                                                                                             \
    }                                                                                                      \
  } while (0)

#define IS(expected, call)                                                                            \
  do {                                                                                                \
    const ncclResult_t expected_ = (expected), result_ = (call);                                      \
    if (result_ != expected_) {                                                                       \
      fprintf(stderr, "%s:%d: %s is %d, not %d; %s\n", __FILE__, __LINE__, #call, result_, expected_, \
              ncclGetLastError(NULL));                                                                \
      exit(1);                                                                                        \
    }                                                                                                 \
  } while (0)

#define OK(call) IS(ncclSuccess, call)

/* All ranks of the process in one group: `call` names its communicator `comm` and its number `rank`. */
#define ALL(ranks, call)                          \
  do {                                            \
    OK(ncclGroupStart());                         \
    for (int at = 0; at < (ranks)->count; ++at) { \
      const int rank = (ranks)->first + at;       \
      const ncclComm_t comm = (ranks)->comms[at]; \
      (void)rank, (void)comm;                     \
      OK(call);                                   \
    }                                             \
    OK(ncclGroupEnd());                           \
  } while (0)

void check_collectives(struct Ranks* ranks);
void check_types(struct Ranks* ranks);
void check_messages(struct Ranks* ranks);
void check_operators(struct Ranks* ranks);
void check_splits(struct Ranks* ranks);
void check_queries(struct Ranks* ranks);

#endif
