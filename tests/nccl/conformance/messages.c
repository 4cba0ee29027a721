/* Messages in groups: rings, all pairs, a rank with itself, several between two ranks in order, beside collectives. */
#include "ranks.h"

enum { kElements = 30000, kMessages = 5 };

static int sent[kMostRanks][kMostRanks][kElements];
static int received[kMostRanks][kMostRanks][kElements];

static void fill(const struct Ranks* ranks) {
  for (int at = 0; at < ranks->count; ++at) {
    for (int peer = 0; peer < ranks->world; ++peer) {
      for (int i = 0; i < kElements; ++i) {
        sent[at][peer][i] = (ranks->first + at) * 1000000 + peer * 100000 + i, received[at][peer][i] = -1;
      }
    }
  }
}

static void check_from(const struct Ranks* ranks, int at, int peer) {
  for (int i = 0; i < kElements; ++i) {
    CHECK(received[at][peer][i] == peer * 1000000 + (ranks->first + at) * 100000 + i);
  }
}

static void ring(struct Ranks* ranks) {
  fill(ranks);
  OK(ncclGroupStart());
  for (int at = 0; at < ranks->count; ++at) {
    const int rank = ranks->first + at;
    const int next = (rank + 1) % ranks->world;
    const int previous = (rank + ranks->world - 1) % ranks->world;
    OK(ncclSend(sent[at][next], kElements, ncclInt32, next, ranks->comms[at], NULL));
    OK(ncclRecv(received[at][previous], kElements, ncclInt32, previous, ranks->comms[at], NULL));
  }
  OK(ncclGroupEnd());
  for (int at = 0; at < ranks->count; ++at) {
    check_from(ranks, at, (ranks->first + at + ranks->world - 1) % ranks->world);
  }
}

static void all_pairs(struct Ranks* ranks) {
  int sums[kMostRanks];
  fill(ranks);
  OK(ncclGroupStart());
  for (int at = 0; at < ranks->count; ++at) {
    sums[at] = ranks->first + at;
    OK(ncclGroupStart());
    for (int peer = 0; peer < ranks->world; ++peer) {
      OK(ncclRecv(received[at][peer], kElements, ncclInt32, peer, ranks->comms[at], NULL));
      OK(ncclSend(sent[at][peer], kElements, ncclInt32, peer, ranks->comms[at], NULL));
    }
    OK(ncclGroupEnd());
    OK(ncclAllReduce(&sums[at], &sums[at], 1, ncclInt32, ncclSum, ranks->comms[at], NULL));
  }
  OK(ncclGroupEnd());
  for (int at = 0; at < ranks->count; ++at) {
    CHECK(sums[at] == ranks->world * (ranks->world - 1) / 2);
    for (int peer = 0; peer < ranks->world; ++peer) check_from(ranks, at, peer);
  }
}

static void in_order(struct Ranks* ranks) {
  int out[kMessages];
  int in[kMessages];
  OK(ncclGroupStart());
  for (int i = 0; i < kMessages; ++i) {
    out[i] = 10 * i, in[i] = -1;
    for (int at = 0; at < ranks->count; ++at) {
      const int rank = ranks->first + at;
      if (rank == 0) OK(ncclSend(&out[i], 1, ncclInt32, ranks->world - 1, ranks->comms[at], NULL));
      if (rank == ranks->world - 1) OK(ncclRecv(&in[i], 1, ncclInt32, 0, ranks->comms[at], NULL));
    }
  }
  OK(ncclGroupEnd());
  if (ranks->first + ranks->count != ranks->world) return;
  for (int i = 0; i < kMessages; ++i) CHECK(in[i] == 10 * i);
}

void check_messages(struct Ranks* ranks) {
  ring(ranks);
  all_pairs(ranks);
  in_order(ranks);
  ALL(ranks, ncclSend(NULL, 0, ncclInt32, (rank + 1) % ranks->world, comm, NULL));
}
