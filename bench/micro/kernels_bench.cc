// Speed of the kernels in L2, on every instruction set that this machine has, against memcpy.
//
// 64 Ki floats (256 KiB) at addresses that are multiples of 64, like those of tensors, in buckets of 1024 (minmax) or
// blocks of 128 (int). grid's step is half of the root mean square, of all elements (bound) or of buckets. GB/s counts
// bytes of float32 input. Kernel and memcpy of the same 256 KiB alternate in batches, because a shared machine's speed
// changes from moment to moment. The ratio is the median over the pairs of adjacent batches; GB/s and the time are also
// medians.
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
#include "kernels/block_int/block_int.h"
#include "kernels/grid/grid.h"
#include "kernels/h4/h4.h"
#include "kernels/lossless/lossless.h"
#include "kernels/minmax/minmax.h"
#include "kernels/onebit/onebit.h"
#include "kernels/reduce/reduce.h"
#include "kernels/sign/sign.h"
#include "kernels/simd.h"
#include "kernels/topk/topk.h"

namespace {

using namespace qccl;

constexpr std::size_t kElements = 64 * 1024;
constexpr std::size_t kBytes = kElements * sizeof(float);
constexpr int kBatch = 8;

// Memory in whole cache lines.
template <class T>
class LineBuffer {
 public:
  explicit LineBuffer(std::size_t count) : lines_(count * sizeof(T) / sizeof(Line)) {}
  T* data() { return reinterpret_cast<T*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

struct Buffers {
  LineBuffer<float> source{kElements}, addend{kElements}, target{kElements};
  LineBuffer<std::byte> encoded{2 * kBytes};
};

Buffers make_buffers() {
  Buffers buffers;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < kElements; ++i) buffers.source.data()[i] = normal(random);
  for (std::size_t i = 0; i < kElements; ++i) buffers.addend.data()[i] = normal(random);
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

// Times `kernel` alternating with memcpy, on `simd`, after one call of `prepare`.
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

using Encode = std::function<void(const float* source, std::byte* target, const kernels::RandomStream* random)>;
// Without an addend if it is null.
using Decode = std::function<void(const std::byte* source, const float* addend, float* target)>;

void add_decoders(const std::string& simd, const std::string& name, const Decode& decode, const Kernel& encode) {
  add(
      simd, name + "/decode", [=](Buffers& b) { decode(b.encoded.data(), nullptr, b.target.data()); }, encode);
  add(
      simd, name + "/decode_add", [=](Buffers& b) { decode(b.encoded.data(), b.addend.data(), b.target.data()); },
      encode);
  add(
      simd, name + "/decode_add_in_place",
      [=](Buffers& b) { decode(b.encoded.data(), b.target.data(), b.target.data()); }, encode);
}

void add_codec(const std::string& simd, const std::string& name, const Encode& encode, const Decode& decode) {
  const Kernel encode_nearest = [=](Buffers& b) { encode(b.source.data(), b.encoded.data(), nullptr); };
  add(simd, name + "/encode", encode_nearest);
  add(simd, name + "/encode_stochastic", [=](Buffers& b) {
    const kernels::RandomStream random{.key = 1};
    encode(b.source.data(), b.encoded.data(), &random);
  });
  add_decoders(simd, name, decode, encode_nearest);
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
  const Kernel round = [=](Buffers& b) {
    float* const values = b.source.data();
    std::transform(values, values + kElements, values, rounded);
  };
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
    check(kernels::lossless_decode(b.encoded.data(), *bytes, nullptr, b.target.data(), kElements));
  };
  add(simd, name + "/decode", decode, round_and_encode);
  const Kernel decode_add = [=](Buffers& b) {
    check(kernels::lossless_decode(b.encoded.data(), *bytes, b.addend.data(), b.target.data(), kElements));
  };
  add(simd, name + "/decode_add", decode_add, round_and_encode);
}

void add_topk(const std::string& simd, const std::string& name, kernels::TopkFormat format) {
  const Kernel encode = [=](Buffers& b) { kernels::topk_encode(format, b.source.data(), kElements, b.encoded.data()); };
  const Kernel decode = [=](Buffers& b) {
    check(kernels::topk_decode(format, b.encoded.data(), nullptr, b.target.data(), kElements));
  };
  const Kernel decode_add = [=](Buffers& b) {
    check(kernels::topk_decode(format, b.encoded.data(), b.target.data(), b.target.data(), kElements));
  };
  add(simd, name + "/encode", encode);
  add(simd, name + "/decode", decode, encode);
  add(simd, name + "/decode_add_in_place", decode_add, encode);
}

void add_minmax(const std::string& simd, int bits) {
  const kernels::MinmaxFormat format{bits, 1024};
  add_codec(
      simd, "minmax" + std::to_string(bits),
      [=](const float* source, std::byte* target, const kernels::RandomStream* random) {
        kernels::minmax_encode(format, source, kElements, target, random);
      },
      [=](const std::byte* source, const float* addend, float* target) {
        kernels::minmax_decode(format, source, addend, target, kElements);
      });
}

void add_block_int(const std::string& simd, int bits) {
  const kernels::BlockIntFormat format{bits, 128};
  add_codec(
      simd, "int" + std::to_string(bits),
      [=](const float* source, std::byte* target, const kernels::RandomStream* random) {
        kernels::block_int_encode(format, source, kElements, target, random);
      },
      [=](const std::byte* source, const float* addend, float* target) {
        kernels::block_int_decode(format, source, addend, target, kElements);
      });
}

void add_grid(const std::string& simd, const std::string& name, const kernels::GridFormat& format) {
  const auto bytes = std::make_shared<std::size_t>(0);
  add_codec(
      simd, name,
      [=](const float* source, std::byte* target, const kernels::RandomStream* random) {
        *bytes = kernels::grid_encode(format, source, kElements, target, random);
      },
      [=](const std::byte* source, const float* addend, float* target) {
        check(kernels::grid_decode(format, source, *bytes, addend, target, kElements));
      });
}

void add_h4(const std::string& simd, int bits) {
  const std::string name = "h" + std::to_string(bits);
  const Kernel encode = [=](Buffers& b) {
    kernels::h4_encode({bits, true}, {1, 0}, b.source.data(), kElements, b.encoded.data());
  };
  add(simd, name + "/encode", encode);
  const Decode decode = [=](const std::byte* source, const float* addend, float* target) {
    kernels::h4_decode({bits}, source, addend, target, kElements);
  };
  add_decoders(simd, name, decode, encode);
}

// encode_with_residual also computes the residual for error feedback.
void add_sign(const std::string& simd, const std::string& name, kernels::SignFormat format) {
  const Kernel encode = [=](Buffers& b) { kernels::sign_encode(format, b.source.data(), kElements, b.encoded.data()); };
  add(simd, name + "/encode", encode);
  add(simd, name + "/encode_with_residual", [=](Buffers& b) {
    kernels::sign_encode(format, b.source.data(), kElements, b.encoded.data(), 1.0f, b.target.data());
  });
  const Decode decode = [=](const std::byte* source, const float* addend, float* target) {
    kernels::sign_decode(format, source, addend, target, kElements);
  };
  add_decoders(simd, name, decode, encode);
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
    add(simd, "narrow_" + name,
        [=](Buffers& b) { kernels::narrow(type, b.encoded.data(), b.source.data(), kElements); });
    add(simd, "widen_" + name, [=](Buffers& b) { kernels::widen(type, b.target.data(), b.encoded.data(), kElements); });
    add(simd, "add_widened_" + name, [=](Buffers& b) {
      kernels::reduce_widened(type, ReduceOp::sum, b.target.data(), b.addend.data(), b.encoded.data(), kElements);
    });
  }
}

// Registered before main() of the benchmark library runs.
const bool registered = [] {
  for (const std::string_view target : kernels::simd_targets()) {
    const std::string simd(target);
    for (const int bits : {8, 4, 2, 3, 5, 6, 7}) add_block_int(simd, bits);
    for (const int bits : {8, 4, 1, 2, 3, 5, 6, 7, 16}) add_minmax(simd, bits);
    add_onebit(simd);
    add_lossless(simd, "lossless_float32", [](float x) { return x; });
    add_lossless(simd, "lossless_bfloat16", [](float x) { return to_float(to_bfloat16(x)); });
    add_lossless(simd, "lossless_float16", [](float x) { return to_float(to_float16(x)); });
    for (const std::uint32_t kept : {41u, 4u, 410u}) {
      add_topk(simd, "topk_" + std::to_string(kept) + "_of_4096", {.kept = kept});
    }
    add_topk(simd, "topk_41_of_4096_int8", {.kept = 41, .values = kernels::TopkValues::int8});
    for (const int bits : {4, 3, 2}) add_h4(simd, bits);
    add_grid(simd, "grid_bound", {.step = 0.5f});
    add_grid(simd, "grid", {.bucket_size = 1024});
    add_grid(simd, "grid_of_256", {.bucket_size = 256});
    add_grid(simd, "grid_rans", {.bucket_size = 1024, .entropy = true});
    add_sign(simd, "sign", {.bucket_size = 256, .norm_scale = false});
    add_sign(simd, "sign_of_1024", {.bucket_size = 1024, .norm_scale = false});
    add_sign(simd, "sign_of_64", {.bucket_size = 64, .norm_scale = false});
    add_sign(simd, "sign_of_1000", {.bucket_size = 1000, .norm_scale = false});
    add_sign(simd, "sign_norm", {.bucket_size = 256, .norm_scale = true});
    add_reductions(simd);
  }
  return true;
}();

}  // namespace
