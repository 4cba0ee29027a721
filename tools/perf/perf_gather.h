// Gathers the ranks' measurements, over the communicator that is measured.
#pragma once

#include <qccl/qccl.h>

#include <span>
#include <vector>

namespace qccl::tools {

// Every rank's `mine`, in rank order. Collective.
template <class T>
std::vector<T> gather(Communicator& communicator, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::span<const T>(&mine, 1), std::span<T>(all));
  return all;
}

// The same for vectors of one length on all ranks.
inline std::vector<std::vector<double>> gather(Communicator& communicator, const std::vector<double>& mine) {
  const auto world = static_cast<std::size_t>(communicator.size());
  std::vector<double> flat(mine.size() * world);
  communicator.all_gather(mine, flat);
  std::vector<std::vector<double>> all;
  for (std::size_t rank = 0; rank < world; ++rank) {
    const auto begin = flat.begin() + static_cast<std::ptrdiff_t>(rank * mine.size());
    all.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(mine.size()));
  }
  return all;
}

}  // namespace qccl::tools
