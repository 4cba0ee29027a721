/* Reductions of every type, with every operator; operators with a scalar; movement of types that are not reduced. */
#include <stdint.h>

#include "ranks.h"

enum { kElements = 100, kBytes = 8 * kElements };

static unsigned char inputs[kMostRanks][kBytes];
static unsigned char outputs[kMostRanks][kBytes];

/* Small whole numbers, as a type stores them. */
static uint64_t stored(ncclDataType_t type, int number) {
  uint64_t bits = 0;
  const float single = (float)number;
  const double wide = number;
  uint32_t word;
  memcpy(&word, &single, sizeof(word));
  switch (type) {
    case ncclFloat64: memcpy(&bits, &wide, sizeof(wide)); return bits;
    case ncclFloat32: return word;
    case ncclBfloat16: return word >> 16;
    case ncclFloat16: return number == 0 ? 0 : ((word >> 23) - 112) << 10 | (word >> 13 & 1023);
    default: return (uint64_t)number;
  }
}

static size_t size_of(ncclDataType_t type) {
  static const size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes[type];
}

static int number(int rank, int index) { return rank + 1 + index % 3; }

static void put(unsigned char* bytes, ncclDataType_t type, int index, int value) {
  const uint64_t bits = stored(type, value);
  memcpy(bytes + (size_t)index * size_of(type), &bits, size_of(type));
}

static void expect(const unsigned char* bytes, ncclDataType_t type, int index, int value) {
  const uint64_t bits = stored(type, value);
  CHECK(memcmp(bytes + (size_t)index * size_of(type), &bits, size_of(type)) == 0);
}

static void fill(const struct Ranks* ranks, ncclDataType_t type) {
  for (int at = 0; at < ranks->count; ++at) {
    for (int i = 0; i < kElements; ++i) put(inputs[at], type, i, number(ranks->first + at, i));
  }
}

static int reduced(int world, int index, ncclRedOp_t op) {
  int result = number(0, index);
  for (int rank = 1; rank < world; ++rank) {
    const int each = number(rank, index);
    if (op == ncclProd) result *= each;
    if (op == ncclSum) result += each;
    if (op == ncclMax && each > result) result = each;
    if (op == ncclMin && each < result) result = each;
  }
  return result;
}

/* 3 * 4 * 5 * 6 would not fit into int8. */
static int fits(ncclDataType_t type, int value) { return type != ncclInt8 || value < 128; }

void check_types(struct Ranks* ranks) {
  static const ncclRedOp_t kOperators[] = {ncclSum, ncclProd, ncclMax, ncclMin};
  for (ncclDataType_t type = ncclInt8; type <= ncclBfloat16; type = (ncclDataType_t)(type + 1)) {
    for (int o = 0; o < 4; ++o) {
      fill(ranks, type);
      ALL(ranks, ncclAllReduce(inputs[at], outputs[at], kElements, type, kOperators[o], comm, NULL));
      for (int at = 0; at < ranks->count; ++at) {
        for (int i = 0; i < kElements; ++i) {
          const int value = reduced(ranks->world, i, kOperators[o]);
          if (fits(type, value)) expect(outputs[at], type, i, value);
        }
      }
    }
  }
  for (ncclDataType_t type = ncclInt8; type < ncclNumTypes; type = (ncclDataType_t)(type + 1)) {
    const size_t bytes = size_of(type) * kElements;
    for (int at = 0; at < ranks->count; ++at) {
      for (size_t i = 0; i < bytes; ++i) inputs[at][i] = (unsigned char)(17 * (ranks->first + at) + i);
    }
    ALL(ranks, ncclBroadcast(inputs[at], outputs[at], kElements, type, ranks->world - 1, comm, NULL));
    for (int at = 0; at < ranks->count; ++at) {
      for (size_t i = 0; i < bytes; ++i) CHECK(outputs[at][i] == (unsigned char)(17 * (ranks->world - 1) + i));
    }
  }
}

/* Each rank's factor is its own: rank + 2. A scalar on the device is read when the call runs, one on the host at once. */
static void with_scalar(struct Ranks* ranks, ncclDataType_t type, ncclScalarResidence_t residence) {
  unsigned char scalars[kMostRanks][8];
  ncclRedOp_t operators[kMostRanks];
  fill(ranks, type);
  for (int at = 0; at < ranks->count; ++at) {
    put(scalars[at], type, 0, residence == ncclScalarDevice ? 100 : ranks->first + at + 2);
    OK(ncclRedOpCreatePreMulSum(&operators[at], scalars[at], type, residence, ranks->comms[at]));
    CHECK(operators[at] > ncclAvg);
    put(scalars[at], type, 0, residence == ncclScalarDevice ? ranks->first + at + 2 : 100);
  }
  ALL(ranks, ncclAllReduce(inputs[at], outputs[at], kElements, type, operators[at], comm, NULL));
  for (int at = 0; at < ranks->count; ++at) {
    for (int i = 0; i < kElements; ++i) {
      int sum = 0;
      for (int rank = 0; rank < ranks->world; ++rank) sum += (rank + 2) * number(rank, i);
      expect(outputs[at], type, i, sum);
    }
    OK(ncclRedOpDestroy(operators[at], ranks->comms[at]));
    IS(ncclInvalidArgument, ncclRedOpDestroy(operators[at], ranks->comms[at]));
    IS(ncclInvalidArgument,
       ncclAllReduce(inputs[at], outputs[at], 1, type, operators[at], ranks->comms[at], NULL));
  }
}

void check_operators(struct Ranks* ranks) {
  static const ncclDataType_t kFloating[] = {ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16};
  for (int t = 0; t < 4; ++t) {
    with_scalar(ranks, kFloating[t], ncclScalarHostImmediate);
    with_scalar(ranks, kFloating[t], ncclScalarDevice);
  }
  for (int at = 0; at < ranks->count; ++at) {
    IS(ncclInvalidUsage, ncclAllReduce(inputs[at], outputs[at], 1, ncclFloat8e4m3, ncclSum, ranks->comms[at], NULL));
    CHECK(strstr(ncclGetLastError(ranks->comms[at]), "fp8") != NULL);
    IS(ncclInvalidUsage, ncclAllReduce(inputs[at], outputs[at], 1, ncclInt32, ncclAvg, ranks->comms[at], NULL));
  }
}
