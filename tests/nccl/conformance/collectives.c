/* Every collective, out of place and in place, with every root, below and above the size from which it is compressed. */
#include "ranks.h"

enum { kMostElements = 20000 };

static float inputs[kMostRanks][kMostRanks * kMostElements];
static float outputs[kMostRanks][kMostRanks * kMostElements];

static float value(int rank, size_t index) { return (float)(rank + 1) * (float)(1 + index % 7); }

static float sum_of(int world, size_t index) {
  return (float)(world * (world + 1) / 2) * (float)(1 + index % 7);
}

static void fill(const struct Ranks* ranks, size_t elements) {
  for (int at = 0; at < ranks->count; ++at) {
    for (size_t i = 0; i < elements; ++i) inputs[at][i] = value(ranks->first + at, i), outputs[at][i] = -1;
  }
}

static void all_reduce(struct Ranks* ranks, size_t count) {
  fill(ranks, count + 1);
  ALL(ranks, ncclAllReduce(inputs[at], outputs[at], count, ncclFloat32, ncclSum, comm, NULL));
  ALL(ranks, ncclAllReduce(inputs[at], inputs[at], count, ncclFloat32, ncclMax, comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    for (size_t i = 0; i < count; ++i) CHECK(outputs[at][i] == sum_of(ranks->world, i));
    for (size_t i = 0; i < count; ++i) CHECK(inputs[at][i] == value(ranks->world - 1, i));
    CHECK(outputs[at][count] == -1);
  }
}

static void rooted(struct Ranks* ranks, size_t count, int root) {
  const size_t whole = count * (size_t)ranks->world;
  fill(ranks, whole);
  ALL(ranks, ncclReduce(inputs[at], rank == root ? outputs[at] : NULL, count, ncclFloat32, ncclAvg, root, comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    for (size_t i = 0; i < count; ++i) {
      CHECK(outputs[at][i] == (ranks->first + at == root ? sum_of(ranks->world, i) / (float)ranks->world : -1));
    }
  }
  fill(ranks, whole);
  ALL(ranks, ncclBroadcast(rank == root ? inputs[at] : NULL, outputs[at], count, ncclFloat32, root, comm, NULL));
  ALL(ranks, ncclBcast(inputs[at], count, ncclFloat32, root, comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    for (size_t i = 0; i < count; ++i) CHECK(outputs[at][i] == value(root, i) && inputs[at][i] == value(root, i));
  }
  fill(ranks, whole);
  ALL(ranks, ncclGather(inputs[at], rank == root ? outputs[at] : NULL, count, ncclFloat32, root, comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    if (ranks->first + at != root) continue;
    for (size_t i = 0; i < whole; ++i) CHECK(outputs[at][i] == value((int)(i / count), i % count));
  }
  fill(ranks, whole);
  ALL(ranks, ncclScatter(rank == root ? inputs[at] : NULL, outputs[at], count, ncclFloat32, root, comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    const size_t begin = (size_t)(ranks->first + at) * count;
    for (size_t i = 0; i < count; ++i) CHECK(outputs[at][i] == value(root, begin + i));
  }
}

/* The root's own part is where it belongs: NCCL's in-place rule. */
static void rooted_in_place(struct Ranks* ranks, size_t count, int root) {
  const size_t whole = count * (size_t)ranks->world;
  fill(ranks, whole);
  for (int at = 0; at < ranks->count; ++at) {
    const int rank = ranks->first + at;
    memcpy(outputs[at] + (size_t)rank * count, inputs[at], count * sizeof(float));
  }
  ALL(ranks, ncclGather(rank == root ? outputs[at] + (size_t)rank * count : inputs[at],
                        rank == root ? outputs[at] : NULL, count, ncclFloat32, root, comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    if (ranks->first + at != root) continue;
    for (size_t i = 0; i < whole; ++i) CHECK(outputs[at][i] == value((int)(i / count), i % count));
  }
  fill(ranks, whole);
  ALL(ranks, ncclScatter(rank == root ? inputs[at] : NULL,
                         rank == root ? inputs[at] + (size_t)rank * count : outputs[at], count, ncclFloat32, root, comm,
                         NULL));
  for (int at = 0; at < ranks->count; ++at) {
    const int rank = ranks->first + at;
    const size_t begin = (size_t)rank * count;
    if (rank == root) {
      for (size_t i = 0; i < whole; ++i) CHECK(inputs[at][i] == value(root, i));
    } else {
      for (size_t i = 0; i < count; ++i) CHECK(outputs[at][i] == value(root, begin + i));
    }
  }
}

static void parts(struct Ranks* ranks, size_t count) {
  const size_t whole = count * (size_t)ranks->world;
  fill(ranks, whole);
  ALL(ranks, ncclAllGather(inputs[at], outputs[at], count, ncclFloat32, comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    for (size_t i = 0; i < whole; ++i) CHECK(outputs[at][i] == value((int)(i / count), i % count));
  }
  for (int at = 0; at < ranks->count; ++at) {
    memcpy(outputs[at] + (size_t)(ranks->first + at) * count, inputs[at], count * sizeof(float));
  }
  ALL(ranks, ncclAllGather(outputs[at] + (size_t)rank * count, outputs[at], count, ncclFloat32, comm, NULL));
  ALL(ranks, ncclReduceScatter(inputs[at], inputs[at] + (size_t)rank * count, count, ncclFloat32, ncclSum, comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    const size_t begin = (size_t)(ranks->first + at) * count;
    for (size_t i = 0; i < whole; ++i) CHECK(outputs[at][i] == value((int)(i / count), i % count));
    for (size_t i = 0; i < count; ++i) CHECK(inputs[at][begin + i] == sum_of(ranks->world, begin + i));
  }
  fill(ranks, whole);
  ALL(ranks, ncclAlltoAll(inputs[at], outputs[at], count, ncclFloat32, comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    const size_t begin = (size_t)(ranks->first + at) * count;
    for (size_t i = 0; i < whole; ++i) CHECK(outputs[at][i] == value((int)(i / count), begin + i % count));
  }
}

void check_collectives(struct Ranks* ranks) {
  static const size_t kCounts[] = {1, 7, 1000, kMostElements};
  for (size_t c = 0; c < sizeof(kCounts) / sizeof(*kCounts); ++c) {
    all_reduce(ranks, kCounts[c]);
    parts(ranks, kCounts[c]);
    for (int root = 0; root < ranks->world; ++root) {
      rooted(ranks, kCounts[c], root);
      rooted_in_place(ranks, kCounts[c], root);
    }
  }
  ALL(ranks, ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, comm, NULL));
  ALL(ranks, ncclBroadcast(NULL, NULL, 0, ncclFloat32, 0, comm, NULL));
}
