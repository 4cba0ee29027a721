// DeepSpeed's 1-bit compressed all-reduce, which 1-bit Adam, 1-bit LAMB and 0/1 Adam use. It sends one bit an element
// each way, and two error buffers carry the errors of compression to the next call.
//
// n elements on each of W ranks, padded with zeros to P, a multiple of 8 W; rank c owns chunk c, C = P / W elements:
//
//   every rank r:  b = pad(x) + worker_error;  s_r = |b| / sqrt(P);  q_r = b >= 0 ? 1 : -1;  worker_error = b - s_r q_r
//   its owner:     m = sum over r of q_r s_r / W + server_error;     t_c = |m| / sqrt(C);    p = m >= 0 ? 1 : -1
//                  server_error = m - t_c p
//   every rank:    chunk c of the result = t_c p
//
// -0 and NaN count as +1. Wire: 2 (W - 1) / W P / 8 bytes a rank and 16 bytes of scale and count a message.
// Reference: DeepSpeed, runtime/comm/compressed.py; Tang et al., "1-bit Adam", ICML 2021.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>

#include "qccl/device.h"

namespace qccl {

class Communicator;

// Sizes of the error buffers of compressed_allreduce(), which are zero before the first step.
struct OnebitSizes {
  std::size_t worker_error = 0;  // P: any multiple of 8 * world that is at least `count`
  std::size_t server_error = 0;  // worker_error / world
};

// The smallest sizes for `count` elements on `world` ranks (at least 1). DeepSpeed's optimizers take a larger P for
// some worlds (a multiple of world * lcm(world, 8)), which is a different, equally valid padding.
OnebitSizes onebit_sizes(std::size_t count, int world);

// Settings of compressed_allreduce().
struct OnebitOptions {
  std::optional<std::chrono::milliseconds> timeout{};  // of each of the two exchanges; unset: the group's
  std::optional<DeviceStream> stream{};                // see CallOptions::stream; of all four buffers
};

// `output` is `input` or overlaps nothing; `input` is only read. The error buffers overlap nothing. They have the sizes
// of onebit_sizes(), or those of a larger padding.
struct OnebitBuffers {
  std::span<const float> input;   // this rank's values
  std::span<float> output;        // the average
  std::span<float> worker_error;  // of this rank's values
  std::span<float> server_error;  // of this rank's chunk of the average
};

// `output` becomes the AVERAGE over the ranks, the same bits on all of them, compressed to a sign per element and one
// scale per chunk; the error buffers receive the errors of compression. Blocking, and collective over the group. Throws
// Error: invalid_argument names the sizes that the error buffers need; misuse on all ranks if they give different
// counts, and between group_start() and group_end(). With no elements both error buffers become zero. A NaN makes the
// whole result NaN on every rank, and stays in the error buffers until the caller clears them. After an error other
// than invalid_argument, output and error buffers are unspecified.
void compressed_allreduce(Communicator& group, const OnebitBuffers& buffers, const OnebitOptions& options = {});

}  // namespace qccl
