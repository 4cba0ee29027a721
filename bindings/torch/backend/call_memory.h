// The memory that a call's operations work in: the tensors' own memory where the library can use it, else copies.
//
// Tensors of a call may share memory: a tensor appears twice in a list, views overlap, an input is among the outputs.
// The library works on all operations of a call at once, so operations share memory only if none writes it. Colliding
// tensors travel through copies. The result is gloo's: inputs have the values they had when the call was made, and
// outputs are written in list order, so the last one wins. Coalesced calls must not collide: a program that makes one
// call after another expects the second to see the first one's results.
#pragma once

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace qccl::torch_binding {

// While it lives, this thread may write the tensor, even one made in inference mode, and autograd does not see the
// writes.
class WriteGuard {
 public:
  explicit WriteGuard(const at::Tensor& tensor) : inference_(tensor.is_inference()) {}

 private:
  const c10::InferenceMode inference_;
  const at::NoGradGuard no_grad_;  // after inference_, which turns gradients on when it turns inference mode off
};

struct MemoryRange {
  std::uintptr_t begin;
  std::uintptr_t end;
};

class MemoryRanges {
 public:
  void add(MemoryRange range) {
    for (auto found = first_overlapping(range); found != ends_.end(); found = first_overlapping(range)) {
      range = {std::min(range.begin, found->first), std::max(range.end, found->second)};
      ends_.erase(found);
    }
    if (range.begin != range.end) ends_.emplace(range.begin, range.end);
  }

  bool overlap(const MemoryRange& range) const { return first_overlapping(range) != ends_.end(); }

 private:
  using Ends = std::map<std::uintptr_t, std::uintptr_t>;

  Ends::const_iterator first_overlapping(const MemoryRange& range) const {
    if (range.begin == range.end) return ends_.end();
    auto found = ends_.upper_bound(range.begin);
    if (found != ends_.begin() && std::prev(found)->second > range.begin) return std::prev(found);
    return found != ends_.end() && found->first < range.end ? found : ends_.end();
  }

  Ends ends_;  // by begin; none overlap
};

// The ranges of memory that the operations of a call read and write in place, and those that results are copied to once
// they have ended. A strided tensor counts as the whole range from its first to its last element.
class UsedMemory {
 public:
  void add_read(const at::Tensor& tensor) { reads_.add(range_of(tensor)); }
  void add_write(const at::Tensor& tensor) { writes_.add(range_of(tensor)); }
  void add_later_write(const at::Tensor& tensor) { later_writes_.add(range_of(tensor)); }
  // Whether another operation may read (or write) the tensor in place.
  bool may_read(const at::Tensor& tensor) const { return !writes_.overlap(range_of(tensor)); }
  bool may_write(const at::Tensor& tensor) const {
    const MemoryRange range = range_of(tensor);
    return !reads_.overlap(range) && !writes_.overlap(range) && !later_writes_.overlap(range);
  }

 private:
  static MemoryRange range_of(const at::Tensor& tensor) {
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
    if (tensor.numel() == 0) return {begin, begin};
    std::int64_t last = 0;
    for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    return {begin, begin + (static_cast<std::size_t>(last) + 1) * tensor.element_size()};
  }

  MemoryRanges reads_;
  MemoryRanges writes_;
  MemoryRanges later_writes_;
};

// Keeps the tensors it returns alive; they are contiguous. One thread at a time.
class CallMemory {
 public:
  using Tensors = std::vector<at::Tensor>;
  struct Pair {
    at::Tensor source;
    at::Tensor target;
  };

  // The values of the inputs, one after the other.
  at::Tensor read(const Tensors& inputs) {
    note(inputs, false);
    const at::Tensor whole = as_consecutive(inputs);
    return whole.defined() ? read_plain(whole) : hold(packed(inputs));
  }

  // Room for the results of the outputs, one after the other.
  at::Tensor write(const Tensors& outputs) {
    note(outputs, true);
    const at::Tensor whole = as_consecutive(outputs);
    if (whole.defined() && used_.may_write(whole)) {
      used_.add_write(whole);
      return hold(whole);
    }
    const at::Tensor room = hold(empty_like(outputs));
    copy_back(room, outputs);
    return room;
  }

  // Room for a tensor's result, initialized with its values.
  at::Tensor update(const at::Tensor& tensor) {
    note({tensor}, true);
    if (!lies_plainly(tensor) || !used_.may_write(tensor)) return stage(tensor, {tensor});
    used_.add_write(tensor);
    return hold(tensor);
  }

  // read() and write() for an operation that works in place if the smaller buffer begins `in_place_offset` bytes into
  // the larger.
  Pair read_and_write(const Tensors& inputs, const Tensors& outputs, std::size_t in_place_offset) {
    const at::Tensor input = as_consecutive(inputs);
    const at::Tensor output = as_consecutive(outputs);
    const bool in_place = input.defined() && output.defined() && starts_inside(input, output, in_place_offset) &&
                          used_.may_read(input) && used_.may_write(output);
    if (in_place) {
      note(inputs, false);
      note(outputs, true);
      used_.add_read(input);
      used_.add_write(output);
      return {hold(input), hold(output)};
    }
    at::Tensor target = write(outputs);
    return {read(inputs), std::move(target)};
  }

  // A copy of `values`. finish() copies its result to each of `outputs`, in order. All have the same shape.
  at::Tensor stage(const at::Tensor& values, const Tensors& outputs) {
    const at::Tensor copy = hold(contiguous_values(values.detach().clone(at::MemoryFormat::Contiguous)));
    for (const at::Tensor& output : outputs) copy_back_to(copy, output);
    return copy;
  }

  // finish() copies the consecutive parts of `result` to `outputs`. `result` must share no memory with them.
  void copy_back(const at::Tensor& result, const Tensors& outputs) {
    std::int64_t offset = 0;
    for (const at::Tensor& output : outputs) {
      copy_back_to(result.narrow(0, offset, output.numel()).view(output.sizes()), output);
      offset += output.numel();
    }
  }

  // Copies results to their tensors, once all operations have ended. A device copies in a stream of its own, and has
  // when this returns: what this thread's stream is, is the program's business.
  void finish() const {
    std::vector<c10::Stream> streams;  // coalesced calls may be on several devices
    for (const CopyBack& copy : copies_) {
      const c10::Device device = copy.target.device();
      if (device.is_cpu()) {
        copy_result(copy);
        continue;
      }
      auto own = std::ranges::find(streams, device, &c10::Stream::device);
      if (own == streams.end()) {
        own = streams.insert(own, c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
      }
      const c10::StreamGuard guard(*own);
      copy_result(copy);
    }
    for (const c10::Stream& stream : streams) stream.synchronize();
  }

  bool has_copies() const { return !copies_.empty(); }

  // Takes over the tensors and copies of `other`.
  void absorb(CallMemory&& other) {
    std::move(other.held_.begin(), other.held_.end(), std::back_inserter(held_));
    std::move(other.copies_.begin(), other.copies_.end(), std::back_inserter(copies_));
  }

  // Whether one call writes a tensor that the other uses. Ignores tensors with gaps: their overlap is too costly to
  // determine.
  bool collides_with(const CallMemory& other) const {
    const auto overlap = [](const Use& a, const Use& b) {
      if (!a.written && !b.written) return false;
      const auto status = at::get_overlap_status(a.tensor, b.tensor);
      return status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial;
    };
    return std::any_of(uses_.begin(), uses_.end(), [&](const Use& own) {
      return std::any_of(other.uses_.begin(), other.uses_.end(), [&](const Use& use) { return overlap(own, use); });
    });
  }

 private:
  struct CopyBack {
    at::Tensor source;
    at::Tensor target;
  };

  struct Use {
    at::Tensor tensor;
    bool written;
  };

  // Whether the tensor's elements lie one after the other in memory, with their actual values.
  static bool lies_plainly(const at::Tensor& tensor) {
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
  }

  // One tensor over the memory of all of these, if they lie one after the other; otherwise undefined.
  static at::Tensor as_consecutive(const Tensors& tensors) {
    if (tensors.size() == 1) return lies_plainly(tensors.front()) ? tensors.front() : at::Tensor();
    const auto first =
        std::find_if(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.numel() > 0; });
    if (first == tensors.end()) return {};
    std::int64_t offset = first->storage_offset();
    for (const at::Tensor& tensor : tensors) {
      if (tensor.numel() == 0) continue;
      const bool follows = lies_plainly(tensor) && tensor.scalar_type() == first->scalar_type() &&
                           tensor.is_alias_of(*first) && tensor.storage_offset() == offset;
      if (!follows) return {};
      offset += tensor.numel();
    }
    return first->detach().as_strided({offset - first->storage_offset()}, {1}, first->storage_offset());
  }

  static at::Tensor contiguous_values(const at::Tensor& tensor) {
    return tensor.detach().resolve_conj().resolve_neg().contiguous();
  }

  // The values of tensors that do not lie one after the other.
  static at::Tensor packed(const Tensors& tensors) {
    if (tensors.size() == 1) return contiguous_values(tensors.front());
    Tensors parts;
    for (const at::Tensor& tensor : tensors) parts.push_back(contiguous_values(tensor).view(-1));
    return at::cat(parts);
  }

  static at::Tensor empty_like(const Tensors& tensors) {
    std::int64_t total = 0;
    for (const at::Tensor& tensor : tensors) total += tensor.numel();
    return at::empty({total}, tensors.front().options().requires_grad(false));
  }

  static const char* start_of(const at::Tensor& tensor) { return static_cast<const char*>(tensor.const_data_ptr()); }

  static bool starts_inside(const at::Tensor& a, const at::Tensor& b, std::size_t offset) {
    const auto& [smaller, larger] =
        std::minmax(a, b, [](const auto& x, const auto& y) { return x.nbytes() < y.nbytes(); });
    return start_of(smaller) == start_of(larger) + offset;
  }

  static void copy_result(const CopyBack& copy) {
    const WriteGuard guard(copy.target);
    copy.target.copy_(copy.source);
  }

  void note(const Tensors& tensors, bool written) {
    for (const at::Tensor& tensor : tensors) uses_.push_back({tensor, written});
  }

  const at::Tensor& hold(const at::Tensor& tensor) { return held_.emplace_back(tensor); }

  at::Tensor read_plain(const at::Tensor& tensor) {
    if (!used_.may_read(tensor)) return hold(tensor.detach().clone());
    used_.add_read(tensor);
    return hold(tensor);
  }

  void copy_back_to(const at::Tensor& result, const at::Tensor& output) {
    note({output}, true);
    used_.add_later_write(output);
    copies_.push_back({result, output});
  }

  std::vector<Use> uses_;  // of the caller's tensors
  UsedMemory used_;
  Tensors held_;
  std::vector<CopyBack> copies_;
};

}  // namespace qccl::torch_binding
