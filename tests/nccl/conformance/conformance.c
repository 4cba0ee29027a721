/* conformance SHAPE: four ranks of one communicator as documentation shows them: grouped (one thread), threads, init_all,
 * processes (four), mixed (two processes of two). Exit 0 if every check held. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

static void check_everything(struct Ranks* ranks) {
  check_queries(ranks);
  check_collectives(ranks);
  check_types(ranks);
  check_messages(ranks);
  check_operators(ranks);
  check_splits(ranks);
}

static void end(struct Ranks* ranks) {
  for (int at = 0; at < ranks->count; ++at) OK(ncclCommFinalize(ranks->comms[at]));
  for (int at = 0; at < ranks->count; ++at) OK(ncclCommDestroy(ranks->comms[at]));
}

static void init(struct Ranks* ranks, ncclUniqueId id) {
  OK(ncclGroupStart());
  for (int at = 0; at < ranks->count; ++at) {
    OK(ncclCommInitRank(&ranks->comms[at], ranks->world, id, ranks->first + at));
  }
  OK(ncclGroupEnd());
}

static void run_ranks(int first, int count, ncclUniqueId id) {
  struct Ranks ranks = {.first = first, .count = count, .world = kMostRanks};
  init(&ranks, id);
  check_everything(&ranks);
  end(&ranks);
}

static void run_init_all(void) {
  struct Ranks ranks = {.first = 0, .count = kMostRanks, .world = kMostRanks};
  OK(ncclCommInitAll(ranks.comms, kMostRanks, NULL));
  check_everything(&ranks);
  end(&ranks);
}

/* The checks' buffers are the process's, so ranks that are threads run a check of their own. */
struct Thread {
  pthread_t thread;
  ncclUniqueId id;
  int rank;
};

static void* run_thread(void* argument) {
  const struct Thread* const own = argument;
  ncclComm_t comm;
  int number = own->rank, in = -1;
  OK(ncclCommInitRank(&comm, kMostRanks, own->id, own->rank));
  for (int i = 0; i < 100; ++i) {
    int sum = own->rank + i;
    OK(ncclAllReduce(&sum, &sum, 1, ncclInt32, ncclSum, comm, NULL));
    CHECK(sum == 6 + 4 * i);
    OK(ncclGroupStart());
    OK(ncclSend(&number, 1, ncclInt32, (own->rank + 1) % kMostRanks, comm, NULL));
    OK(ncclRecv(&in, 1, ncclInt32, (own->rank + 3) % kMostRanks, comm, NULL));
    OK(ncclGroupEnd());
    CHECK(in == (own->rank + 3) % kMostRanks);
  }
  OK(ncclCommDestroy(comm));
  return NULL;
}

static void run_threads(void) {
  struct Thread threads[kMostRanks];
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  for (int rank = 0; rank < kMostRanks; ++rank) {
    threads[rank].id = id, threads[rank].rank = rank;
    CHECK(pthread_create(&threads[rank].thread, NULL, run_thread, &threads[rank]) == 0);
  }
  for (int rank = 0; rank < kMostRanks; ++rank) CHECK(pthread_join(threads[rank].thread, NULL) == 0);
}

/* The process of rank 0 makes the id and passes it to the others. */
static int run_processes(int each) {
  int pipes[2], failed = 0, status = 0;
  pid_t children[kMostRanks];
  CHECK(pipe(pipes) == 0);
  for (int first = 0; first < kMostRanks; first += each) {
    children[first] = fork();
    CHECK(children[first] >= 0);
    if (children[first] > 0) continue;
    ncclUniqueId id;
    if (first == 0) {
      OK(ncclGetUniqueId(&id));
      for (int i = each; i < kMostRanks; i += each) CHECK(write(pipes[1], &id, sizeof(id)) == sizeof(id));
    } else {
      CHECK(read(pipes[0], &id, sizeof(id)) == sizeof(id));
    }
    run_ranks(first, each, id);
    exit(0);
  }
  for (int first = 0; first < kMostRanks; first += each) {
    CHECK(waitpid(children[first], &status, 0) == children[first]);
    failed |= status != 0;
  }
  return failed;
}

int main(int argc, char** argv) {
  const char* const shape = argc == 2 ? argv[1] : "";
  if (strcmp(shape, "processes") == 0) return run_processes(1);
  if (strcmp(shape, "mixed") == 0) return run_processes(2);
  if (strcmp(shape, "grouped") == 0) {
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    run_ranks(0, kMostRanks, id);
  } else if (strcmp(shape, "init_all") == 0) {
    run_init_all();
  } else if (strcmp(shape, "threads") == 0) {
    run_threads();
  } else {
    fprintf(stderr, "conformance grouped|threads|init_all|processes|mixed\n");
    return 2;
  }
  return 0;
}
