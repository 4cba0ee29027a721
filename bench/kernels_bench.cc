// Speed of the kernels in L2, on every instruction set that this machine has, against memcpy.
//
// 64 Ki floats (256 KiB) in buckets of 1024. GB/s counts bytes of float32 input. Kernel and memcpy of
// the same 256 KiB take turns in batches, because a shared machine's speed changes from moment to
// moment; the ratio is the median over the pairs of neighbours, GB/s and the time are medians too.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/half.h"
#include "kernels/lossless.h"
#include "kernels/minmax.h"
#include "kernels/onebit.h"
#include "kernels/reduce.h"
#include "kernels/simd.h"
#include "kernels/topk.h"

namespace {

using namespace qccl;

constexpr std::size_t kElements = 64 * 1024;
constexpr std::size_t kBytes = kElements * sizeof(float);
constexpr int kBatch = 8;

struct Buffers {
  std::vector<float> source, addend, target;
  std::vector<std::byte> encoded;
};

Buffers make_buffers() {
  Buffers buffers{std::vector<float>(kElements), std::vector<float>(kElements), std::vector<float>(kElements),
                  std::vector<std::byte>(2 * kBytes)};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (float& x : buffers.source) x = normal(random);
  for (float& x : buffers.addend) x = normal(random);
  return buffers;
}

double batch_seconds(const std::function<void()>& work) {
  const SteadyClock clock;
  const TimePoint begin = clock.now();
  for (int i = 0; i < kBatch; ++i) {
    work();
    benchmark::ClobberMemory();
  }
  return std::chrono::duration<double>(clock.now() - begin).count() / kBatch;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

using Kernel = std::function<void(Buffers&)>;

// Times `kernel` in turns with memcpy, on `simd`, after one call of `prepare`.
void measure(benchmark::State& state, const std::string& simd, const Kernel& prepare, const Kernel& kernel) {
  kernels::force_simd(simd);
  Buffers buffers = make_buffers();
  prepare(buffers);
  std::vector<double> times, ratios;
  for (auto _ : state) {
    const double copy = batch_seconds([&] { std::memcpy(buffers.target.data(), buffers.source.data(), kBytes); });
    const double time = batch_seconds([&] { kernel(buffers); });
    times.push_back(time);
    ratios.push_back(copy / time);
    state.SetIterationTime(time);
  }
  state.counters["GB/s"] = kBytes / median(times) / 1e9;
  state.counters["of_memcpy"] = median(ratios);
  kernels::force_simd(kernels::simd_targets().front());
}

void add(
    const std::string& simd, const std::string& name, const Kernel& kernel, const Kernel& prepare = [](Buffers&) {}) {
  benchmark::RegisterBenchmark((simd + "/" + name).c_str(),
                               [=](benchmark::State& state) { measure(state, simd, prepare, kernel); })
      ->UseManualTime()
      ->MinTime(0.1)
      ->Unit(benchmark::kMicrosecond);
}

void add_minmax(const std::string& simd, int bits) {
  const kernels::MinmaxFormat format{bits, 1024};
  const std::string name = "minmax" + std::to_string(bits);
  const Kernel encode = [=](Buffers& b) {
    kernels::minmax_encode(format, b.source.data(), kElements, b.encoded.data());
  };
  const Kernel decode = [=](Buffers& b) {
    kernels::minmax_decode(format, b.encoded.data(), b.target.data(), kElements);
  };
  const Kernel decode_add = [=](Buffers& b) {
    kernels::minmax_decode_add(format, b.encoded.data(), b.addend.data(), b.target.data(), kElements);
  };
  const Kernel decode_add_in_place = [=](Buffers& b) {
    kernels::minmax_decode_add(format, b.encoded.data(), b.target.data(), b.target.data(), kElements);
  };
  add(simd, name + "/encode", encode);
  add(simd, name + "/decode", decode, encode);
  add(simd, name + "/decode_add", decode_add, encode);
  add(simd, name + "/decode_add_in_place", decode_add_in_place, encode);
}

// The passes of compressed_allreduce(); GB/s of fp32 elements each.
void add_onebit(const std::string& simd) {
  const Kernel pack = [](Buffers& b) {
    kernels::onebit_pack(b.source.data(), kElements, b.target.data(), kElements, b.encoded.data());
  };
  add(simd, "onebit/pack", pack);
  add(simd, "onebit/subtract", [](Buffers& b) { kernels::onebit_subtract(0.5f, b.target.data(), kElements); });
  for (const std::size_t ranks : {2u, 8u}) {
    add(simd, "onebit/sum_of_" + std::to_string(ranks), [=](Buffers& b) {
      const std::vector<kernels::SignedPart> parts(ranks, {b.encoded.data() + kElements, 0.1f});
      kernels::onebit_sum(parts.data(), ranks, b.target.data(), kElements, b.encoded.data());
    });
  }
  add(
      simd, "onebit/expand",
      [](Buffers& b) {
        kernels::onebit_expand({b.encoded.data(), 0.5f}, b.target.data(), kElements);
      },
      pack);
}

void check(bool decoded) {
  if (!decoded) std::abort();
}

void add_lossless(const std::string& simd, const std::string& name, float (*rounded)(float)) {
  const Kernel round = [=](Buffers& b) { std::transform(b.source.begin(), b.source.end(), b.source.begin(), rounded); };
  const auto bytes = std::make_shared<std::size_t>(0);
  const Kernel encode = [=](Buffers& b) {
    *bytes = kernels::lossless_encode(b.source.data(), kElements, b.encoded.data());
  };
  const Kernel round_and_encode = [=](Buffers& b) {
    round(b);
    encode(b);
  };
  add(simd, name + "/encode", encode, round);
  const Kernel decode = [=](Buffers& b) {
    check(kernels::lossless_decode(b.encoded.data(), *bytes, b.target.data(), kElements));
  };
  add(simd, name + "/decode", decode, round_and_encode);
  const Kernel decode_add = [=](Buffers& b) {
    check(kernels::lossless_decode_add(b.encoded.data(), *bytes, b.addend.data(), b.target.data(), kElements));
  };
  add(simd, name + "/decode_add", decode_add, round_and_encode);
}

void add_topk(const std::string& simd, const std::string& name, kernels::TopkFormat format) {
  const Kernel encode = [=](Buffers& b) { kernels::topk_encode(format, b.source.data(), kElements, b.encoded.data()); };
  const Kernel decode = [=](Buffers& b) {
    check(kernels::topk_decode(format, b.encoded.data(), b.target.data(), kElements));
  };
  const Kernel decode_add = [=](Buffers& b) {
    check(kernels::topk_decode_add(format, b.encoded.data(), b.target.data(), b.target.data(), kElements));
  };
  add(simd, name + "/encode", encode);
  add(simd, name + "/decode", decode, encode);
  add(simd, name + "/decode_add_in_place", decode_add, encode);
}

void add_reductions(const std::string& simd) {
  add(simd, "sum_float32", [](Buffers& b) {
    kernels::reduce(DataType::float32, ReduceOp::sum, b.target.data(), b.source.data(), b.addend.data(), kElements);
  });
  add(simd, "sum_float32_in_place", [](Buffers& b) {
    kernels::reduce(DataType::float32, ReduceOp::sum, b.target.data(), b.target.data(), b.source.data(), kElements);
  });
  add(simd, "max_float32", [](Buffers& b) {
    kernels::reduce(DataType::float32, ReduceOp::max, b.target.data(), b.source.data(), b.addend.data(), kElements);
  });
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    const std::string name(to_string(type));
    add("narrow_" + name, simd,
        [=](Buffers& b) { kernels::narrow(type, b.encoded.data(), b.source.data(), kElements); });
    add("widen_" + name, simd, [=](Buffers& b) { kernels::widen(type, b.target.data(), b.encoded.data(), kElements); });
    add(simd, "add_widened_" + name, [=](Buffers& b) {
      kernels::reduce_widened(type, ReduceOp::sum, b.target.data(), b.addend.data(), b.encoded.data(), kElements);
    });
  }
}

// Registered before main() of the benchmark library runs.
const bool registered = [] {
  for (const std::string_view target : kernels::simd_targets()) {
    const std::string simd(target);
    for (const int bits : {8, 4, 1, 2, 3, 5, 6, 7, 16}) add_minmax(simd, bits);
    add_onebit(simd);
    add_lossless(simd, "lossless_float32", [](float x) { return x; });
    add_lossless(simd, "lossless_bfloat16", [](float x) { return to_float(to_bfloat16(x)); });
    add_lossless(simd, "lossless_float16", [](float x) { return to_float(to_float16(x)); });
    for (const std::uint32_t kept : {41u, 4u, 410u}) {
      add_topk(simd, "topk_" + std::to_string(kept) + "_of_4096", {.kept = kept, .int8_values = false});
    }
    add_topk(simd, "topk_41_of_4096_int8", {.kept = 41, .int8_values = true});
    add_reductions(simd);
  }
  return true;
}();

}  // namespace
