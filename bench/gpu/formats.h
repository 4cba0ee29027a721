// The formats of slices that the kernels serve, by the names of their codecs.
#pragma once

#include <string>
#include <vector>

#include "kernels/device/slice_job.h"

namespace qccl::bench::gpu {

struct Format {
  std::string name;
  DataType type = DataType::float32;
  kernels::device::PayloadFormat payload{};
  bool has_residual = false;  // error feedback
};

inline std::vector<Format> formats() {
  using kernels::device::PayloadFormat;
  using kernels::device::PayloadKind;
  std::vector<Format> all;
  for (const DataType type : {DataType::float32, DataType::float16, DataType::bfloat16, DataType::float64,
                              DataType::int32, DataType::uint8, DataType::boolean}) {
    all.push_back({"none of " + std::string(to_string(type)), type, {}});
  }
  all.push_back({"cast:type=fp16", DataType::float32, {.kind = PayloadKind::float16}});
  all.push_back({"cast:type=bf16", DataType::float32, {.kind = PayloadKind::bfloat16}});
  const auto add = [&](const std::string& name, PayloadFormat format, DataType type = DataType::float32) {
    all.push_back({name, type, format});
  };
  for (std::uint8_t bits = 1; bits <= 8; ++bits) {
    add("minmax:bits=" + std::to_string(bits), {.kind = PayloadKind::minmax, .bits = bits, .bucket = 1024});
  }
  add("minmax:bits=4 of bfloat16", {.kind = PayloadKind::minmax, .bits = 4, .bucket = 1024}, DataType::bfloat16);
  add("minmax:bits=4,bucket_size=1000", {.kind = PayloadKind::minmax, .bits = 4, .bucket = 1000});
  add("minmax:bits=4 stochastic", {.kind = PayloadKind::minmax, .bits = 4, .stochastic = true, .bucket = 1024});
  for (std::uint8_t bits = 2; bits <= 8; ++bits) {
    add("int:bits=" + std::to_string(bits), {.kind = PayloadKind::block_int, .bits = bits, .bucket = 128});
  }
  add("int:bits=8 stochastic", {.kind = PayloadKind::block_int, .bits = 8, .stochastic = true, .bucket = 128});
  add("sign", {.kind = PayloadKind::sign, .bucket = 256});
  add("sign of norms", {.kind = PayloadKind::sign, .norm_scale = true, .bucket = 256});
  add("grid:bound=0.1", {.kind = PayloadKind::grid, .step = 0.2f});
  add("grid:relative=0.5", {.kind = PayloadKind::grid, .bucket = 4096, .step = 0.5f});
  add("grid:relative=0.5,bucket=32768", {.kind = PayloadKind::grid, .bucket = 32768, .step = 0.5f});
  add("grid:relative=0.5 stochastic", {.kind = PayloadKind::grid, .stochastic = true, .bucket = 4096, .step = 0.5f});
  all.push_back({"sign with residual", DataType::float32, {.kind = PayloadKind::sign, .bucket = 256}, true});
  return all;
}

}  // namespace qccl::bench::gpu
