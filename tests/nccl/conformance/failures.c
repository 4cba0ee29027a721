/* failures CASE: what happens if a rank stops, dies, is late or aborts, and communicators that are made without blocking.
 * Exit 0 if every check held. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

static ncclConfig_t config_of(int blocking) {
  ncclConfig_t config = {.size = sizeof(config), .magic = 0xcafebeef, .version = 22809, .blocking = blocking};
  config.cgaClusterSize = config.minCTAs = config.maxCTAs = config.splitShare = NCCL_CONFIG_UNDEF_INT;
  return config;
}

static void await(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) OK(ncclCommGetAsyncError(comm, &state));
  IS(ncclSuccess, state);
}

static void sum(ncclComm_t* comms, int count) {
  int values[kMostRanks];
  OK(ncclGroupStart());
  for (int at = 0; at < count; ++at) {
    values[at] = at + 1;
    OK(ncclAllReduce(&values[at], &values[at], 1, ncclInt32, ncclSum, comms[at], NULL));
  }
  OK(ncclGroupEnd());
  for (int at = 0; at < count; ++at) CHECK(values[at] == count * (count + 1) / 2);
}

/* The loop of NCCL's documentation of non-blocking communicators. */
static void non_blocking_group(void) {
  ncclComm_t comms[kMostRanks];
  ncclUniqueId id;
  ncclConfig_t config = config_of(0);
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  for (int rank = 0; rank < kMostRanks; ++rank) {
    const ncclResult_t result = ncclCommInitRankConfig(&comms[rank], kMostRanks, id, rank, &config);
    CHECK(result == ncclSuccess || result == ncclInProgress);
  }
  const ncclResult_t ended = ncclGroupEnd();
  if (ended == ncclInProgress) {
    for (int rank = 0; rank < kMostRanks; ++rank) await(comms[rank]);
  } else {
    IS(ncclSuccess, ended);
  }
  sum(comms, kMostRanks);
  for (int rank = 0; rank < kMostRanks; ++rank) OK(ncclCommDestroy(comms[rank]));
}

/* Without a configuration a split takes its parent's: it does not block. */
static void non_blocking_split(void) {
  ncclComm_t comms[2], parts[2];
  ncclUniqueId id;
  ncclConfig_t config = config_of(0);
  OK(ncclGetUniqueId(&id));
  for (int rank = 0; rank < 2; ++rank) {
    const ncclResult_t result = ncclCommInitRankConfig(&comms[rank], 2, id, rank, &config);
    CHECK(result == ncclSuccess || result == ncclInProgress);
  }
  for (int rank = 0; rank < 2; ++rank) await(comms[rank]);
  alarm(20);
  for (int rank = 0; rank < 2; ++rank) {
    const ncclResult_t result = ncclCommSplit(comms[rank], 0, 0, &parts[rank], NULL);
    CHECK(result == ncclSuccess || result == ncclInProgress);
  }
  for (int rank = 0; rank < 2; ++rank) await(parts[rank]);
  sum(parts, 2);
  for (int rank = 0; rank < 2; ++rank) OK(ncclCommDestroy(parts[rank]));
  for (int rank = 0; rank < 2; ++rank) OK(ncclCommDestroy(comms[rank]));
}

/* A configuration of a later release is longer. */
static void later_configuration(void) {
  struct {
    ncclConfig_t known;
    int more[4];
  } later = {.known = config_of(1), .more = {1, 2, 3, 4}};
  ncclComm_t comm;
  ncclUniqueId id;
  later.known.size = sizeof(later), later.known.version = 23007;
  OK(ncclGetUniqueId(&id));
  OK(ncclCommInitRankConfig(&comm, 1, id, 0, &later.known));
  sum(&comm, 1);
  OK(ncclCommDestroy(comm));
  later.known.magic = 1;
  IS(ncclInvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, &later.known));
}

static void wrong_ids(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  memset(&id, 0, sizeof(id));
  IS(ncclInvalidArgument, ncclCommInitRank(&comm, 2, id, 0));
  OK(ncclGetUniqueId(&id));
  IS(ncclInvalidArgument, ncclCommInitRank(&comm, 2, id, 2));
  IS(ncclInvalidArgument, ncclCommInitRank(&comm, 0, id, 0));
  IS(ncclInvalidArgument, ncclCommInitRank(NULL, 1, id, 0));
  IS(ncclInvalidArgument, ncclGetUniqueId(NULL));
}

/* Tells rank 1 that the sum has been posted. */
static void* stuck_sum(void* argument) {
  int value = 1;
  const int word = 7;
  const ncclComm_t comm = argument;
  OK(ncclGroupStart());
  OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL));
  OK(ncclSend(&word, 1, ncclInt32, 1, comm, NULL));
  return ncclGroupEnd() == ncclSuccess ? NULL : argument;
}

/* A thread waits in a call for a rank that never comes; another thread aborts its communicator. */
static void abort_from_another_thread(void) {
  ncclComm_t comms[2];
  pthread_t thread;
  ncclResult_t state = ncclSuccess;
  void* failed = NULL;
  int value = 1, word = 0;
  alarm(20);
  OK(ncclCommInitAll(comms, 2, NULL));
  CHECK(pthread_create(&thread, NULL, stuck_sum, comms[0]) == 0);
  OK(ncclRecv(&word, 1, ncclInt32, 0, comms[1], NULL));
  CHECK(word == 7);
  OK(ncclCommAbort(comms[0]));
  CHECK(pthread_join(thread, &failed) == 0);
  CHECK(failed != NULL);
  CHECK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[1], NULL) != ncclSuccess);
  OK(ncclCommGetAsyncError(comms[1], &state));
  CHECK(state != ncclSuccess && state != ncclInProgress);
  OK(ncclCommAbort(comms[1]));
}

/* Returns null if rank 0 of two was made. */
static void* stuck_init(void* argument) {
  ncclComm_t comm;
  return ncclCommInitRank(&comm, 2, *(const ncclUniqueId*)argument, 0) == ncclSuccess ? NULL : argument;
}

/* A communicator whose other rank never comes: abort ends its making. */
static void abort_while_made(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  ncclConfig_t config = config_of(0);
  alarm(15);
  OK(ncclGetUniqueId(&id));
  const ncclResult_t result = ncclCommInitRankConfig(&comm, 2, id, 0, &config);
  CHECK(result == ncclSuccess || result == ncclInProgress);
  OK(ncclCommAbort(comm));
}

/* QCCL_INIT_TIMEOUT ends a making whose other rank never comes. */
static void nobody_comes(void) {
  ncclUniqueId id;
  pthread_t thread;
  void* failed = NULL;
  alarm(20);
  OK(ncclGetUniqueId(&id));
  CHECK(pthread_create(&thread, NULL, stuck_init, &id) == 0);
  CHECK(pthread_join(thread, &failed) == 0);
  CHECK(failed != NULL);
}

/* The last of three ranks, each a process, dies once all have the result of a call. */
static void lost_rank(void) {
  ncclUniqueId id;
  int pipes[2], done[2], status = 0;
  pid_t children[3];
  CHECK(pipe(pipes) == 0 && pipe(done) == 0);
  for (int rank = 0; rank < 3; ++rank) {
    if ((children[rank] = fork()) > 0) continue;
    ncclComm_t comm;
    ncclResult_t state = ncclSuccess;
    int value = 1;
    alarm(30);
    if (rank == 0) {
      OK(ncclGetUniqueId(&id));
      for (int i = 0; i < 2; ++i) CHECK(write(pipes[1], &id, sizeof(id)) == sizeof(id));
    } else {
      CHECK(read(pipes[0], &id, sizeof(id)) == sizeof(id));
    }
    OK(ncclCommInitRank(&comm, 3, id, rank));
    OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL));
    if (rank < 2) CHECK(write(done[1], "", 1) == 1);
    for (int i = 0; rank == 2 && i < 2; ++i) CHECK(read(done[0], (char[1]){0}, 1) == 1);
    if (rank == 2) raise(SIGKILL);
    IS(ncclRemoteError, ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL));
    OK(ncclCommGetAsyncError(comm, &state));
    IS(ncclRemoteError, state);
    CHECK(strstr(ncclGetLastError(comm), "rank 2") != NULL);
    ncclComm_t smaller;
    int excluded = 2;
    OK(ncclCommShrink(comm, &excluded, 1, &smaller, NULL, NCCL_SHRINK_ABORT));
    value = 1;
    OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, smaller, NULL));
    CHECK(value == 2);
    OK(ncclCommDestroy(smaller));
    OK(ncclCommAbort(comm));
    exit(0);
  }
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    CHECK(rank == 2 ? WIFSIGNALED(status) : status == 0);
  }
}

/* QCCL_TIMEOUT ends a call whose other rank does not come. */
static void late_rank(void) {
  ncclComm_t comms[2];
  ncclResult_t state = ncclSuccess;
  int value = 1;
  alarm(30);
  OK(ncclCommInitAll(comms, 2, NULL));
  IS(ncclSystemError, ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comms[0], NULL));
  OK(ncclCommGetAsyncError(comms[0], &state));
  IS(ncclSystemError, state);
  OK(ncclCommAbort(comms[0]));
  OK(ncclCommAbort(comms[1]));
}

/* The parent makes the id and forks the ranks. */
static void forked_after_the_id(void) {
  ncclUniqueId id;
  pid_t children[2];
  int status = 0;
  OK(ncclGetUniqueId(&id));
  for (int rank = 0; rank < 2; ++rank) {
    if ((children[rank] = fork()) > 0) continue;
    ncclComm_t comm;
    int value = 1;
    alarm(30);
    OK(ncclCommInitRank(&comm, 2, id, rank));
    OK(ncclAllReduce(&value, &value, 1, ncclInt32, ncclSum, comm, NULL));
    CHECK(value == 2);
    OK(ncclCommDestroy(comm));
    exit(0);
  }
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(waitpid(children[rank], &status, 0) == children[rank]);
    CHECK(status == 0);
  }
}

/* Ranks of one communicator have other numbers in the launcher's job. */
static void under_a_launcher(void) {
  setenv("RANK", "3", 1), setenv("WORLD_SIZE", "8", 1), setenv("LOCAL_RANK", "3", 1), setenv("LOCAL_WORLD_SIZE", "8", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1), setenv("MASTER_PORT", "1", 1), setenv("TORCHELASTIC_RUN_ID", "job", 1);
  ncclComm_t comms[2];
  ncclUniqueId id;
  OK(ncclGetUniqueId(&id));
  OK(ncclGroupStart());
  for (int rank = 0; rank < 2; ++rank) OK(ncclCommInitRank(&comms[rank], 2, id, rank));
  OK(ncclGroupEnd());
  sum(comms, 2);
  for (int rank = 0; rank < 2; ++rank) OK(ncclCommDestroy(comms[rank]));
}

/* With QCCL_COMPRESSION=minmax:bits=2 or QNCCL's variables a large sum is not exact, and the same on all ranks. */
static void compressed(void) {
  enum { kElements = 100000 };
  static float data[2][kElements];
  ncclComm_t comms[2];
  int inexact = 0;
  OK(ncclCommInitAll(comms, 2, NULL));
  for (int at = 0; at < 2; ++at) {
    for (int i = 0; i < kElements; ++i) data[at][i] = (float)(i % 1013);
  }
  OK(ncclGroupStart());
  for (int at = 0; at < 2; ++at) OK(ncclAllReduce(data[at], data[at], kElements, ncclFloat32, ncclSum, comms[at], NULL));
  OK(ncclGroupEnd());
  CHECK(memcmp(data[0], data[1], sizeof(data[0])) == 0);
  for (int i = 0; i < kElements; ++i) inexact += data[0][i] != 2 * (float)(i % 1013);
  CHECK((inexact > 0) == (getenv("COMPRESSED") != NULL));
  for (int at = 0; at < 2; ++at) OK(ncclCommDestroy(comms[at]));
}

/* Operations of one communicator from one thread while another thread asks for its state. */
static void* ask(void* argument) {
  const ncclComm_t comm = argument;
  ncclResult_t state;
  for (int i = 0; i < 2000; ++i) {
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclSuccess);
    CHECK(ncclGetLastError(comm) != NULL);
  }
  return NULL;
}

static void asked_meanwhile(void) {
  ncclComm_t comms[kMostRanks];
  pthread_t thread;
  OK(ncclCommInitAll(comms, kMostRanks, NULL));
  CHECK(pthread_create(&thread, NULL, ask, comms[0]) == 0);
  for (int i = 0; i < 200; ++i) sum(comms, kMostRanks);
  CHECK(pthread_join(thread, NULL) == 0);
  for (int at = 0; at < kMostRanks; ++at) OK(ncclCommDestroy(comms[at]));
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } kCases[] = {
      {"non_blocking_group", non_blocking_group},
      {"non_blocking_split", non_blocking_split},
      {"later_configuration", later_configuration},
      {"wrong_ids", wrong_ids},
      {"abort_from_another_thread", abort_from_another_thread},
      {"abort_while_made", abort_while_made},
      {"nobody_comes", nobody_comes},
      {"lost_rank", lost_rank},
      {"late_rank", late_rank},
      {"forked_after_the_id", forked_after_the_id},
      {"under_a_launcher", under_a_launcher},
      {"compressed", compressed},
      {"asked_meanwhile", asked_meanwhile},
  };
  for (size_t i = 0; argc == 2 && i < sizeof(kCases) / sizeof(*kCases); ++i) {
    if (strcmp(argv[1], kCases[i].name) != 0) continue;
    kCases[i].run();
    return 0;
  }
  fprintf(stderr, "failures CASE; the cases are:");
  for (size_t i = 0; i < sizeof(kCases) / sizeof(*kCases); ++i) fprintf(stderr, " %s", kCases[i].name);
  fprintf(stderr, "\n");
  return 2;
}
