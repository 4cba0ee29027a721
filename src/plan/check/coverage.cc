#include "plan/check/checker.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

using Visit = std::function<Status(const Requests&)>;

// No elements; less than one per rank; one short slice; several chunks; several slices of a chunk.
constexpr std::uint64_t kCounts[] = {0, 1, 7, 1023, 4099};
constexpr std::uint64_t kSliceElements = 1600;
// In these worlds also more slices of every chunk than a stream has slots.
constexpr int kLastLongWorld = 6;
constexpr std::uint64_t kLongChunk = 9 * kSliceElements + 13;
constexpr std::uint32_t kBucketSize = 100;

std::vector<int> roots(Collective collective, int world) {
  if (!is_rooted(collective)) return {0};
  const std::set<int> some{0, world / 2, world - 1};
  return {some.begin(), some.end()};
}

// Three ranks to a host; one on the first host and the rest on another; interleaved.
std::vector<std::vector<int>> layouts(Algorithm algorithm, int world) {
  if (!entry_of(algorithm).uses_hosts) return {{}};
  std::vector<std::vector<int>> all(3);
  for (int rank = 0; rank < world; ++rank) {
    all[0].push_back(rank / 3);
    all[1].push_back(rank == 0 ? 0 : 1);
    all[2].push_back(rank % 3);
  }
  return all;
}

// Ragged counts: they include zeros, and ranks that have no elements at all.
std::uint64_t ragged(int i, int j = 0) {
  return (i + 2 * j) % 3 == 0 ? 0 : static_cast<std::uint64_t>(37 * i + 11 * j);
}
// From less than one to some twenty slices.
constexpr std::uint64_t kLongRagged = 200;

Request base_request(Collective collective, Algorithm algorithm, int world, bool compressed) {
  return {.collective = collective,
          .algorithm = algorithm,
          .world = world,
          .bucket_size = compressed ? kBucketSize : 1,
          .slice_elements = kSliceElements,
          .compressed = compressed};
}

// Request::lanes of an all_reduce whose chunks have no owners.
std::vector<int> lanes(Collective collective, Algorithm algorithm) {
  const bool has_lanes = collective == Collective::all_reduce && entry_of(algorithm).chunk_count == lanes_of_all_reduce;
  return has_lanes ? std::vector{1, 2, 512} : std::vector{1};
}

// Request::shares: equal chunks; all kinds, of which some are zero; one rank that owns everything.
std::vector<std::vector<int>> shares(Collective collective, Algorithm algorithm, int world) {
  if (!uses_shares(collective, algorithm)) return {{}};
  std::vector<std::vector<int>> all(3);
  for (int rank = 0; rank < world; ++rank) {
    all[1].push_back(static_cast<int>(ragged(rank + 1)));
    all[2].push_back(rank == world / 2 ? 1 : 0);
  }
  return all;
}

bool has_long_chunks(const Request& request) { return request.world >= 2 && request.world <= kLastLongWorld; }

Status visit_same(const Visit& visit, const Request& request) {
  return visit(Requests(static_cast<std::size_t>(request.world), request));
}

Status visit_even(const Visit& visit, Request request) {
  for (const std::uint64_t count : kCounts) {
    request.count = count;
    QCCL_TRY(visit_same(visit, request));
    if (request.collective == Collective::barrier) return {};
  }
  if (!has_long_chunks(request)) return {};
  request.count = has_pieces(request.collective) ? kLongChunk : kLongChunk * static_cast<std::uint64_t>(request.world);
  return visit_same(visit, request);
}

// Ragged counts, each so many times as large.
Status visit_ragged(const Visit& visit, Request request, std::uint64_t times) {
  if (request.collective != Collective::all_to_all) {
    for (int rank = 0; rank < request.world; ++rank) request.counts.push_back(times * ragged(rank));
    return visit_same(visit, request);
  }
  Requests requests;
  for (int rank = 0; rank < request.world; ++rank) {
    requests.push_back(request);
    for (int peer = 0; peer < request.world; ++peer) requests.back().counts.push_back(times * ragged(rank, peer));
    for (int peer = 0; peer < request.world; ++peer) requests.back().counts.push_back(times * ragged(peer, rank));
  }
  return visit(requests);
}

Status visit_ragged(const Visit& visit, const Request& request) {
  if (!has_pieces(request.collective)) return {};
  QCCL_TRY(visit_ragged(visit, request, 1));
  return has_long_chunks(request) ? visit_ragged(visit, request, kLongRagged) : Status();
}

Status visit_layouts(const Visit& visit, Request request) {
  for (const auto& hosts : layouts(request.algorithm, request.world)) {
    request.hosts = hosts;
    QCCL_TRY(visit_even(visit, request));
    QCCL_TRY(visit_ragged(visit, request));
  }
  return {};
}

}  // namespace

Status for_each_request(Collective collective, Algorithm algorithm, int max_world, const Visit& visit) {
  for (int world = 1; world <= max_world; ++world) {
    for (const bool compressed : {false, true}) {
      Request request = base_request(collective, algorithm, world, compressed);
      for (const int root : roots(collective, world)) {
        request.root = root;
        for (const int most : lanes(collective, algorithm)) {
          request.lanes = most;
          for (auto& own : shares(collective, algorithm, world)) {
            request.shares = std::move(own);
            QCCL_TRY(visit_layouts(visit, request));
          }
        }
      }
    }
  }
  return {};
}

std::string describe(const Request& request) {
  std::string text =
      fmt::format("{} {}, world {}", to_string(request.collective), to_string(request.algorithm), request.world);
  if (is_rooted(request.collective)) text += fmt::format(", root {}", request.root);
  if (!request.hosts.empty()) text += fmt::format(", hosts [{}]", fmt::join(request.hosts, " "));
  text += request.counts.empty() ? fmt::format(", {} elements", request.count)
                                 : fmt::format(", counts [{}]", fmt::join(request.counts, " "));
  if (!request.shares.empty()) text += fmt::format(" in shares [{}]", fmt::join(request.shares, " "));
  if (request.lanes > 1) text += fmt::format(" in up to {} lanes", request.lanes);
  if (request.bucket_size > 1) text += fmt::format(" in buckets of {}", request.bucket_size);
  return request.compressed ? text + ", compressed" : text;
}

}  // namespace qccl::plan
