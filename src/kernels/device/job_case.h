// For tests: a job with memory of its own, off alignment, between canaries, and its comparison with slice_oracle.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/device/slice_oracle.h"
#include "kernels/device/test_launcher.h"
#include "kernels/reduce/reduce_reference.h"
#include "kernels/test_values.h"

namespace qccl::kernels::device {

// Gives one element in four the bits of a corner case.
inline ByteVector integer_elements(std::size_t bytes, Random& random) {
  ByteVector elements(bytes);
  for (std::byte& byte : elements) byte = static_cast<std::byte>(random());
  constexpr std::array<int, 4> kCorners = {0x00, 0xFF, 0x80, 0x7F};
  for (std::size_t at = 0; at + 8 <= bytes; at += 8) {
    if (random() % 4 == 0) std::memset(elements.data() + at, kCorners[random() % 4], 8);
  }
  return elements;
}

// Elements of the type, of a family of floats (test_values.h) if the type is one.
inline ByteVector elements_of(DataType type, const ValueFamily& family, std::size_t n, std::uint32_t seed) {
  Random random(seed);
  if (!is_floating(type)) return integer_elements(n * element_bytes(type), random);
  ByteVector elements(n * element_bytes(type));
  for (std::size_t i = 0; i < n; ++i) {
    const float value = family.draw(random, i);
    const double wide = static_cast<double>(value) * (1 + 0x1p-30);
    std::byte* const at = elements.data() + i * element_bytes(type);
    if (type == DataType::float32) std::memcpy(at, &value, 4);
    if (type == DataType::float64) std::memcpy(at, &wide, 8);
    const std::uint16_t half = reference::narrow_exactly(type, std::bit_cast<std::uint32_t>(value));
    if (element_bytes(type) == 2) std::memcpy(at, &half, 2);
  }
  return elements;
}

// A job without memory, and what it is to be run on.
struct JobCase {
  SliceJob job{};
  bool wants_output = true;
  bool wants_sum = false;
  ValueFamily family = finite_families()[0];
  std::uint32_t seed = 1;
  std::size_t shift = 0;  // bytes off alignment
  std::uint32_t groups = 3;
  bool damages_payloads = false;

  std::string text() const {
    const PayloadFormat& format = job.format;
    std::string result = std::string(to_string(job.type)) + " " + std::string(to_string(job.op)) + " format " +
                         std::to_string(static_cast<int>(format.kind)) + ":" + std::to_string(format.bits) +
                         (format.stochastic ? " stochastic" : "") + (format.norm_scale ? " norm" : "") + " bucket " +
                         std::to_string(format.bucket) + " step " + std::to_string(format.step) + ", " +
                         std::to_string(job.count) + " elements of \"" + family.name + "\", " +
                         std::to_string(job.source_count) + " sources, shift " + std::to_string(shift) + ", seed " +
                         std::to_string(seed) + ", " + std::to_string(groups) + " groups";
    return result;
  }
};

template <class T>
std::unique_ptr<Guarded<T>> guarded_output(const std::vector<T>& before, std::size_t shift) {
  return std::unique_ptr<Guarded<T>>(new Guarded<T>(Guarded<T>::output(before, shift)));
}
template <class T>
std::unique_ptr<Guarded<T>> guarded_input(const std::vector<T>& values, std::size_t shift) {
  return std::unique_ptr<Guarded<T>>(new Guarded<T>(Guarded<T>::input(values, shift)));
}

// The memory of a case's job.
class JobMemory {
 public:
  explicit JobMemory(const JobCase& what) : case_(what), job_(what.job) {
    const std::size_t n = job_.count;
    if (what.wants_sum) {
      sum_ = guarded_output(FloatVector(n), 4 * what.shift);
      job_.sum = sum_->data();
    }
    if (what.wants_output) {
      output_ = guarded_output(ByteVector(n * element_bytes(job_.type)), what.shift);
      job_.output = output_->data();
    }
    residual_ = guarded_output(what.family.values(n, what.seed + 77), 4 * what.shift);
    if (uses_residual()) job_.residual = residual_->data();
    for (std::size_t i = 0; i < job_.payload_count; ++i) {
      payloads_.push_back(guarded_output(ByteVector(payload_bytes(job_)), i == 0 ? what.shift : 0));
      job_.payloads[i] = payloads_.back()->data();
    }
    for (std::size_t i = 0; i < job_.source_count; ++i) add_source(i);
  }

  const SliceJob& job() const { return job_; }

  Written written() const {
    Written result;
    if (output_ != nullptr) result.output.assign(output_->data(), output_->data() + output_->size());
    if (sum_ != nullptr) result.sum.assign(sum_->data(), sum_->data() + sum_->size());
    if (job_.keeps_residual) result.residual.assign(residual_->data(), residual_->data() + residual_->size());
    for (std::size_t i = 0; i < payloads_.size(); ++i) {
      const auto bytes = static_cast<std::ptrdiff_t>(payload_bytes(job_, payloads_[i]->data()));
      const ByteVector payload(payloads_[i]->data(), payloads_[i]->data() + bytes);
      const auto is_kept = [](std::byte value) { return value == std::byte{}; };
      EXPECT_TRUE(std::all_of(payloads_[i]->data() + bytes, payloads_[i]->data() + payloads_[i]->size(), is_kept));
      if (i > 0) EXPECT_EQ(payload, result.payload) << "payload " << i << " differs from the first";
      result.payload = payload;
    }
    return result;
  }

 private:
  bool uses_residual() const {
    return job_.keeps_residual ||
           std::ranges::any_of(job_.sources, [](const Source& source) { return source.adds_residual; });
  }

  ByteVector source_of(std::size_t index) const {
    const std::uint32_t seed = case_.seed * 31 + static_cast<std::uint32_t>(index);
    const SourceKind kind = job_.sources[index].kind;
    if (kind == SourceKind::elements) return elements_of(job_.type, case_.family, job_.count, seed);
    if (kind == SourceKind::floats) return elements_of(DataType::float32, case_.family, job_.count, seed);
    Random random(seed);
    ByteVector payload(payload_bytes(job_));
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    const bool has_forms = job_.format.kind == PayloadKind::grid;
    if ((case_.damages_payloads && !has_forms) || !is_encoded(job_.format)) return payload;
    const ByteVector values = elements_of(DataType::float32, case_.family, job_.count, seed);
    SliceJob encoding{.count = job_.count, .source_count = 1, .payload_count = 1, .format = job_.format};
    encoding.sources[0].data = values.data();
    encoding.random = job_.random;
    const ByteVector encoded = Oracle(encoding).run().payload;
    if (!case_.damages_payloads) return encoded;
    payload.resize(encoded.size());
    keep_forms(encoded, payload);
    return payload;
  }

  // Jobs are given payloads whose forms are right.
  void keep_forms(const ByteVector& from, ByteVector& to) const {
    const std::size_t begin = grid_step_bytes(grid_format(job_.format), job_.count);
    if (job_.count > 0) std::memcpy(to.data() + begin, from.data() + begin, grid_form_bytes(job_.count));
  }

  void add_source(std::size_t index) {
    sources_.push_back(guarded_input(source_of(index), case_.shift * (index + 1)));
    job_.sources[index].data = sources_.back()->data();
  }

  const JobCase& case_;
  SliceJob job_;
  std::unique_ptr<Guarded<float>> sum_, residual_;
  std::unique_ptr<Guarded<std::byte>> output_;
  std::vector<std::unique_ptr<Guarded<std::byte>>> payloads_, sources_;
};

inline void expect_as_oracle(const JobCase& what) {
  SCOPED_TRACE(what.text());
  const JobMemory memory(what);
  const Written expected = by_reference([&] { return Oracle(memory.job()).run(); });
  launch_jobs(entry(memory.job()), &memory.job(), 1, what.groups);
  const Written written = memory.written();
  ASSERT_EQ(written.output, expected.output);
  ASSERT_EQ(bits_of(written.sum), bits_of(expected.sum));
  ASSERT_EQ(written.payload, expected.payload);
  ASSERT_EQ(bits_of(written.residual), bits_of(expected.residual));
}

}  // namespace qccl::kernels::device
