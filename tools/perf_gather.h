// What ranks tell each other about a measurement, over the communicator that is measured.
#pragma once

#include <qccl/qccl.h>

#include <cstring>
#include <type_traits>
#include <vector>

namespace qccl::tools {

// Every rank's `mine`, in rank order. Collective.
template <class T>
std::vector<T> gather(Communicator& communicator, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(&mine, all.data(), sizeof(T), DataType::uint8);
  return all;
}

// The same for vectors of one length on all ranks.
inline std::vector<std::vector<double>> gather(Communicator& communicator, const std::vector<double>& mine) {
  const auto world = static_cast<std::size_t>(communicator.size());
  std::vector<double> flat(mine.size() * world);
  communicator.all_gather(mine.data(), flat.data(), mine.size(), DataType::float64);
  std::vector<std::vector<double>> all;
  for (std::size_t rank = 0; rank < world; ++rank) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(rank * mine.size());
    all.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(mine.size()));
  }
  return all;
}

}  // namespace qccl::tools
