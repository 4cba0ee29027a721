#include "plan/check/checker.h"

#include <numeric>

namespace qccl::plan {
namespace {

std::uint64_t piece(const Request& request, int rank) {
  return request.counts.empty() ? request.count : request.counts[static_cast<std::size_t>(rank)];
}

// Where a rank's piece begins among all pieces.
std::uint64_t piece_begin(const Request& request, int rank) {
  std::uint64_t begin = 0;
  for (int before = 0; before < rank; ++before) begin += piece(request, before);
  return begin;
}

std::vector<Source> everyone(int world, std::uint64_t begin) {
  std::vector<Source> sources;
  for (int rank = 0; rank < world; ++rank) sources.push_back({rank, begin});
  return sources;
}

// Every rank's input, one after the other.
std::vector<Expected> concatenation(const Request& request) {
  std::vector<Expected> all;
  for (int rank = 0; rank < request.world; ++rank) {
    all.push_back({{piece_begin(request, rank), piece(request, rank)}, {{rank, 0}}});
  }
  return all;
}

std::vector<Expected> exchanged(const std::vector<Request>& requests, int rank) {
  std::vector<Expected> all;
  std::uint64_t begin = 0;
  for (int source = 0; source < static_cast<int>(requests.size()); ++source) {
    const Request& theirs = requests[static_cast<std::size_t>(source)];
    const std::uint64_t count = piece(theirs, rank);
    all.push_back({{begin, count}, {{source, piece_begin(theirs, rank)}}});
    begin += count;
  }
  return all;
}

}  // namespace

std::vector<Expected> expected_output(const std::vector<Request>& requests, int rank) {
  const Request& request = requests[static_cast<std::size_t>(rank)];
  const bool is_root = rank == request.root;
  const Range whole{0, request.count};
  switch (request.collective) {
    case Collective::all_reduce: return {{whole, everyone(request.world, 0)}};
    case Collective::reduce:
      if (!is_root) return {};
      return {{whole, everyone(request.world, 0)}};
    case Collective::broadcast:
      // The root's buffer changes only to the values that the other ranks decode.
      if (is_root && (!request.compressed || request.world == 1)) return {};
      return {{whole, {{request.root, 0}}}};
    case Collective::reduce_scatter:
      return {{{0, piece(request, rank)}, everyone(request.world, piece_begin(request, rank))}};
    case Collective::all_gather: return concatenation(request);
    case Collective::gather: return is_root ? concatenation(request) : std::vector<Expected>{};
    case Collective::scatter: return {{{0, piece(request, rank)}, {{request.root, piece_begin(request, rank)}}}};
    case Collective::all_to_all: return exchanged(requests, rank);
    case Collective::barrier: break;
  }
  return {};
}

std::optional<std::int64_t> in_place_shift(const Request& request, int rank) {
  const auto own = static_cast<std::int64_t>(piece_begin(request, rank));
  const bool is_root = rank == request.root;
  switch (request.collective) {
    case Collective::all_reduce:
    case Collective::broadcast: return 0;
    case Collective::reduce: return is_root ? std::optional<std::int64_t>(0) : std::nullopt;
    case Collective::all_gather: return own;
    case Collective::reduce_scatter: return -own;
    case Collective::gather: return is_root ? std::optional(own) : std::nullopt;
    case Collective::scatter: return is_root ? std::optional(-own) : std::nullopt;
    case Collective::all_to_all:
    case Collective::barrier: break;
  }
  return std::nullopt;
}

bool is_shared_result(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::broadcast ||
         collective == Collective::all_gather;
}

}  // namespace qccl::plan
