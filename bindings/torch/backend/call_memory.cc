#include "backend/call_memory.h"

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace qccl::torch_binding {
namespace {

using Tensors = CallMemory::Tensors;

// Whether the tensor's elements lie one after the other in memory, with their actual values.
bool lies_plainly(const at::Tensor& tensor) { return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg(); }

// One tensor over the memory of all of these, if they lie one after the other; otherwise undefined.
at::Tensor as_consecutive(const Tensors& tensors) {
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

at::Tensor contiguous_values(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

// The values of tensors that do not lie one after the other.
at::Tensor packed(const Tensors& tensors) {
  if (tensors.size() == 1) return contiguous_values(tensors.front());
  Tensors parts;
  for (const at::Tensor& tensor : tensors) parts.push_back(contiguous_values(tensor).view(-1));
  return at::cat(parts);
}

at::Tensor empty_like(const Tensors& tensors) {
  std::int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.numel();
  return at::empty({total}, tensors.front().options().requires_grad(false));
}

const char* start_of(const at::Tensor& tensor) { return static_cast<const char*>(tensor.const_data_ptr()); }

bool starts_inside(const at::Tensor& a, const at::Tensor& b, std::size_t offset) {
  const auto& [smaller, larger] =
      std::minmax(a, b, [](const auto& x, const auto& y) { return x.nbytes() < y.nbytes(); });
  return start_of(smaller) == start_of(larger) + offset;
}

}  // namespace

UsedMemory::Range UsedMemory::range_of(const at::Tensor& tensor) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  if (tensor.numel() == 0) return {begin, begin};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {begin, begin + (static_cast<std::size_t>(last) + 1) * tensor.element_size()};
}

bool UsedMemory::may_write(const at::Tensor& tensor) const {
  const Range range = range_of(tensor);
  return !reads_.overlap(range) && !writes_.overlap(range) && !later_writes_.overlap(range);
}

UsedMemory::Ranges::Ends::const_iterator UsedMemory::Ranges::first_overlapping(const Range& range) const {
  if (range.begin == range.end) return ends_.end();
  auto found = ends_.upper_bound(range.begin);
  if (found != ends_.begin() && std::prev(found)->second > range.begin) return std::prev(found);
  return found != ends_.end() && found->first < range.end ? found : ends_.end();
}

bool UsedMemory::Ranges::overlap(const Range& range) const { return first_overlapping(range) != ends_.end(); }

void UsedMemory::Ranges::add(Range range) {
  for (auto found = first_overlapping(range); found != ends_.end(); found = first_overlapping(range)) {
    range = {std::min(range.begin, found->first), std::max(range.end, found->second)};
    ends_.erase(found);
  }
  if (range.begin != range.end) ends_.emplace(range.begin, range.end);
}

const at::Tensor& CallMemory::hold(const at::Tensor& tensor) { return held_.emplace_back(tensor); }

at::Tensor CallMemory::read_plain(const at::Tensor& tensor) {
  if (!used_.may_read(tensor)) return hold(tensor.detach().clone());
  used_.add_read(tensor);
  return hold(tensor);
}

void CallMemory::note(const Tensors& tensors, bool written) {
  for (const at::Tensor& tensor : tensors) uses_.push_back({tensor, written});
}

at::Tensor CallMemory::read(const Tensors& inputs) {
  note(inputs, false);
  const at::Tensor whole = as_consecutive(inputs);
  return whole.defined() ? read_plain(whole) : hold(packed(inputs));
}

at::Tensor CallMemory::write(const Tensors& outputs) {
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

at::Tensor CallMemory::update(const at::Tensor& tensor) {
  note({tensor}, true);
  if (!lies_plainly(tensor) || !used_.may_write(tensor)) return stage(tensor, {tensor});
  used_.add_write(tensor);
  return hold(tensor);
}

CallMemory::Pair CallMemory::read_and_write(const Tensors& inputs, const Tensors& outputs,
                                            std::size_t in_place_offset) {
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

at::Tensor CallMemory::stage(const at::Tensor& values, const Tensors& outputs) {
  const at::Tensor copy = hold(contiguous_values(values.detach().clone(at::MemoryFormat::Contiguous)));
  for (const at::Tensor& output : outputs) copy_back_to(copy, output);
  return copy;
}

void CallMemory::copy_back(const at::Tensor& result, const Tensors& outputs) {
  std::int64_t offset = 0;
  for (const at::Tensor& output : outputs) {
    copy_back_to(result.narrow(0, offset, output.numel()).view(output.sizes()), output);
    offset += output.numel();
  }
}

void CallMemory::copy_back_to(const at::Tensor& result, const at::Tensor& output) {
  note({output}, true);
  used_.add_later_write(output);
  copies_.push_back({result, output});
}

void CallMemory::finish() const {
  for (const CopyBack& copy : copies_) {
    const WriteGuard guard(copy.target);
    copy.target.copy_(copy.source);
  }
}

bool CallMemory::collides_with(const CallMemory& other) const {
  const auto overlap = [](const Use& a, const Use& b) {
    if (!a.written && !b.written) return false;
    const auto status = at::get_overlap_status(a.tensor, b.tensor);
    return status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial;
  };
  return std::any_of(uses_.begin(), uses_.end(), [&](const Use& own) {
    return std::any_of(other.uses_.begin(), other.uses_.end(), [&](const Use& use) { return overlap(own, use); });
  });
}

void CallMemory::absorb(CallMemory&& other) {
  std::move(other.held_.begin(), other.held_.end(), std::back_inserter(held_));
  std::move(other.copies_.begin(), other.copies_.end(), std::back_inserter(copies_));
}

}  // namespace qccl::torch_binding
