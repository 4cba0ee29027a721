#include "engine/call/kept_input.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace qccl::engine {
namespace {

// All of a reduction's output is new, and a codec rounds this rank's own part; other calls copy that part onto itself.
bool overwrites(const ExecutablePlan& plan) { return is_reduction(plan.call().collective) || plan.codec() != nullptr; }

}  // namespace

KeptPool::~KeptPool() {
  for (const auto& blocks : free_) {
    for (std::byte* const block : blocks) delete[] block;
  }
}

KeptPool::Memory KeptPool::take(std::size_t bytes) {
  const auto size_class = static_cast<std::size_t>(std::bit_width(bytes - 1));
  const std::lock_guard lock(mutex_);
  auto& free = free_[size_class];
  if (free.empty()) {
    free.reserve(made_[size_class] + 1);  // to give back takes no memory
    free.push_back(std::make_unique_for_overwrite<std::byte[]>(std::size_t{1} << size_class).release());
    ++made_[size_class];
  }
  std::byte* const memory = free.back();
  free.pop_back();
  return Memory(memory, {this, size_class});
}

void KeptPool::give_back(std::byte* memory, std::size_t size_class) {
  const std::lock_guard lock(mutex_);
  free_[size_class].push_back(memory);
}

// On the board a call writes its output once all inputs are there, so it never fails half way.
KeptInput::KeptInput(KeptPool& pool, const ExecutablePlan& plan, const std::byte* input, std::byte* output) {
  if (plan.call().board || !overwrites(plan) || input == nullptr || output == nullptr) return;
  const std::size_t element = element_bytes(plan.call().type);
  const std::byte* const input_end = input + plan.input_elements() * element;
  const std::byte* const output_end = output + plan.output_elements() * element;
  const std::byte* const begin = std::max<const std::byte*>(input, output);
  const std::byte* const end = std::min(input_end, output_end);
  if (begin >= end) return;
  bytes_ = static_cast<std::size_t>(end - begin);
  copy_ = pool.take(bytes_);
  begin_ = output + (begin - output);
}

void KeptInput::move(ConstBytes part, Way way) const {
  if (bytes_ == 0) return;
  const std::byte* const begin = std::max<const std::byte*>(part.data(), begin_);
  const std::byte* const end = std::min<const std::byte*>(part.data() + part.size(), begin_ + bytes_);
  if (begin >= end) return;
  const std::ptrdiff_t at = begin - begin_;
  const auto bytes = static_cast<std::size_t>(end - begin);
  if (way == Way::keep) {
    std::memcpy(copy_.get() + at, begin, bytes);
  } else {
    std::memcpy(begin_ + at, copy_.get() + at, bytes);
  }
}

}  // namespace qccl::engine
