/* The measurement that every contestant of bench/peers/compare in C or C++ runs, so that all are timed alike.

   PROGRAM COLLECTIVE BYTES:WARMUP:SAMPLES:BATCH ...

   A sample is the slowest rank's mean time of BATCH blocking calls. Each rank writes its buffer just before every
   call. With a batch of one, a barrier precedes the call, and the writing is not timed. Longer batches are for sizes
   so small that a barrier would cost more than the call: there the calls follow each other, and the writing (a few
   nanoseconds) is part of the time. At first the ranks make calls for kSettleSeconds: if they outnumber the cores, the
   system takes a tenth of a second to spread new processes over the cores. Rank 0 prints a line of JSON for each size.
   A wrong result ends the program. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct contestant {
  void* state;
  int rank;
  int world;
  void (*barrier)(void* state);
  /* values[i] = the largest values[i] of all ranks */
  void (*maximum)(void* state, double* values, size_t count);
  /* buffer = the sum of all ranks' buffers, in place */
  void (*all_reduce)(void* state, float* buffer, size_t count);
  /* Returns memory to measure in, valid until the next call. NULL: use the C library's. */
  float* (*allocate)(void* state, size_t bytes);
  /* The allowed relative error of a sum; 0 without compression. */
  double tolerance;
};

struct measurement {
  size_t bytes;
  int warmup, samples, batch;
};

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void fill(const struct contestant* self, float* buffer, size_t count) {
  const float value = (float)(self->rank + 1);
  for (size_t i = 0; i < count; ++i) buffer[i] = value;
}

static const double kSettleSeconds = 0.3;

static void settle(const struct contestant* self) {
  float buffer[256];
  const double start = seconds_now();
  double elapsed = 0; /* the slowest rank's, so that all make the same number of calls */
  while (elapsed < kSettleSeconds) {
    fill(self, buffer, 256);
    for (int call = 0; call < 10; ++call) self->all_reduce(self->state, buffer, 256);
    elapsed = seconds_now() - start;
    self->maximum(self->state, &elapsed, 1);
  }
}

static double timed_batch(const struct contestant* self, float* buffer, size_t count, int batch) {
  if (batch == 1) fill(self, buffer, count);
  self->barrier(self->state);
  const double start = seconds_now();
  for (int call = 0; call < batch; ++call) {
    if (batch > 1) fill(self, buffer, count);
    self->all_reduce(self->state, buffer, count);
  }
  return (seconds_now() - start) / batch;
}

static void check(const struct contestant* self, const float* buffer, size_t count) {
  const float expected = (float)(self->world * (self->world + 1) / 2);
  for (size_t i = 0; i < count; ++i) {
    const double error = (double)buffer[i] - (double)expected;
    if (error * error <= self->tolerance * self->tolerance * expected * expected) continue;
    fprintf(stderr, "rank %d: element %zu of %zu is %g, not %g\n", self->rank, i, count, buffer[i], expected);
    exit(3);
  }
}

static void measure(const struct contestant* self, const struct measurement* what, float* buffer) {
  const size_t count = what->bytes / sizeof(float);
  double* samples = (double*)calloc((size_t)what->samples, sizeof(double));
  if (samples == NULL) exit(4);
  for (int i = 0; i < what->warmup; ++i) timed_batch(self, buffer, count, what->batch);
  for (int i = 0; i < what->samples; ++i) samples[i] = timed_batch(self, buffer, count, what->batch);
  check(self, buffer, count);
  self->maximum(self->state, samples, (size_t)what->samples);
  if (self->rank == 0) {
    printf("ROW {\"bytes\": %zu, \"samples\": [", what->bytes);
    for (int i = 0; i < what->samples; ++i) printf("%s%.9f", i > 0 ? ", " : "", samples[i]);
    printf("]}\n");
  }
  free(samples);
}

/* Runs the command line and returns the exit code. */
static int sweep(const struct contestant* self, int argc, char** argv) {
  if (argc < 3 || strcmp(argv[1], "all_reduce") != 0) {
    fprintf(stderr, "usage: %s all_reduce BYTES:WARMUP:SAMPLES:BATCH ...\n", argv[0]);
    return 2;
  }
  /* Rows are written at the end, because their reader would take a core from the ranks. */
  static char rows[1 << 20];
  setvbuf(stdout, rows, _IOFBF, sizeof(rows));
  settle(self);
  for (int i = 2; i < argc; ++i) {
    struct measurement what;
    if (sscanf(argv[i], "%zu:%d:%d:%d", &what.bytes, &what.warmup, &what.samples, &what.batch) != 4) {
      fprintf(stderr, "%s: '%s' is no BYTES:WARMUP:SAMPLES:BATCH\n", argv[0], argv[i]);
      return 2;
    }
    const size_t pages = (what.bytes + 4095) / 4096 * 4096;
    float* own = self->allocate == NULL ? (float*)aligned_alloc(4096, pages) : NULL;
    float* buffer = self->allocate == NULL ? own : self->allocate(self->state, pages);
    if (buffer == NULL) {
      fprintf(stderr, "rank %d: no memory for %zu bytes\n", self->rank, what.bytes);
      return 4;
    }
    measure(self, &what, buffer);
    free(own);
  }
  fflush(stdout);
  return 0;
}
