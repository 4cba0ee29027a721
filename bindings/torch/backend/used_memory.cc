#include "backend/used_memory.h"

#include <algorithm>
#include <iterator>

namespace qccl::torch_binding {

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
  auto place = ends_.upper_bound(range.begin);
  if (place != ends_.begin() && std::prev(place)->second > range.begin) return std::prev(place);
  return place != ends_.end() && place->first < range.end ? place : ends_.end();
}

bool UsedMemory::Ranges::overlap(const Range& range) const { return first_overlapping(range) != ends_.end(); }

void UsedMemory::Ranges::add(Range range) {
  for (auto place = first_overlapping(range); place != ends_.end(); place = first_overlapping(range)) {
    range = {std::min(range.begin, place->first), std::max(range.end, place->second)};
    ends_.erase(place);
  }
  if (range.begin != range.end) ends_.emplace(range.begin, range.end);
}

}  // namespace qccl::torch_binding
