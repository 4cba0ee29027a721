#include "engine/call/resolved_call.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "base/digest/digest.h"
#include "base/options.h"
#include "transport/transport.h"

namespace qccl::engine {
namespace {

constexpr std::size_t kNamedValues = 8;  // of a list; a description has its limit

template <class T>
std::string list_of(std::span<const T> values) {
  const auto named = values.first(std::min(values.size(), kNamedValues));
  return fmt::format("[{}{}]", fmt::join(named, " "), values.size() > named.size() ? " ..." : "");
}

std::string counts_of(const ResolvedCall& call) {
  const std::span<const std::uint64_t> counts(call.counts);
  if (counts.empty()) return fmt::format("count={}", call.count);
  if (call.collective != Collective::all_to_all) return "counts=" + list_of(counts);
  const std::size_t world = counts.size() / 2;
  return fmt::format("sends={}, receives={}", list_of(counts.first(world)), list_of(counts.last(world)));
}

std::uint64_t total(std::span<const std::uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

}  // namespace

std::uint64_t ResolvedCall::fingerprint() const {
  const std::uint64_t parts[] = {static_cast<std::uint64_t>(collective), count,
                                 static_cast<std::uint64_t>(type),       static_cast<std::uint64_t>(op),
                                 static_cast<std::uint64_t>(root),       static_cast<std::uint64_t>(algorithm),
                                 static_cast<std::uint64_t>(board),      static_cast<std::uint64_t>(slice_bytes)};
  std::uint64_t value = digest({reinterpret_cast<const char*>(parts), sizeof(parts)}, 0x7143434CULL);
  if (!compression.is_none()) {
    const auto& settings = compression.settings;
    value = digest(compression.name(), value);
    value = digest({reinterpret_cast<const char*>(&settings), sizeof(settings)}, value);
  }
  if (averaged != 0) value = digest(static_cast<std::uint64_t>(averaged), digest("averaged", value));
  if (error_feedback) value = digest("error feedback", value);
  if (region != 0) value = digest(region_offset, digest(region, value));
  if (memory == MemoryKind::device) value = digest("device memory", value);
  if (window_bytes != 0) value = digest(window_bytes, value);
  for (const int host : hosts) value = digest(static_cast<std::uint64_t>(host), value);
  if (!shares.empty()) value = digest("shares", value);
  for (const int share : shares) value = digest(static_cast<std::uint64_t>(share), value);
  if (counts.empty()) return value;
  value = digest(static_cast<std::uint64_t>(counts.size()), value);
  if (collective == Collective::all_to_all) return value;  // known to each pair alone
  for (const std::uint64_t part : counts) value = digest(part, value);
  return value;
}

std::string ResolvedCall::describe() const {
  const bool is_default_size = slice_bytes == 0 || slice_bytes == kDefaultSliceBytes || slice_bytes == kLongSliceBytes;
  const std::string slices = is_default_size ? "" : fmt::format("slice_bytes={}", slice_bytes);
  if (collective == Collective::barrier) return fmt::format("barrier({})", slices);
  std::string text =
      fmt::format("{}{}({}, {}", to_string(collective), counts.empty() ? "" : "_v", counts_of(*this), to_string(type));
  if (is_reduction(collective)) text += fmt::format(", {}", to_string(op));
  if (is_rooted(collective)) text += fmt::format(", root={}", root);
  if (algorithm != Algorithm::one_shot) text += fmt::format(", {}", to_string(algorithm));
  if (!compression.is_none()) text += ", " + compression.to_string();
  if (error_feedback) text += ", error feedback";
  if (memory == MemoryKind::device) text += ", device memory";
  if (region != 0) text += fmt::format(", byte {} of shared buffer {}", region_offset, region);
  const bool one_host = std::equal(hosts.begin() + (hosts.empty() ? 0 : 1), hosts.end(), hosts.begin());
  if (!one_host) text += fmt::format(", hosts=[{}]", fmt::join(hosts, " "));
  if (!shares.empty()) text += ", shares=" + list_of(std::span<const int>(shares));
  if (!is_default_size) text += ", " + slices;
  return text + ")";
}

std::uint64_t piece_elements(const ResolvedCall& call, int rank) {
  return call.counts.empty() ? call.count : call.counts[static_cast<std::size_t>(rank)];
}

std::uint64_t piece_begin(const ResolvedCall& call, int rank) {
  const auto before = static_cast<std::size_t>(rank);
  if (call.counts.empty()) return before * call.count;
  return total(std::span(call.counts).first(before));
}

std::uint64_t input_elements(const ResolvedCall& call, int world, int rank) {
  switch (call.collective) {
    case Collective::reduce_scatter:
    case Collective::all_to_all: return piece_begin(call, world);
    case Collective::scatter: return rank == call.root ? piece_begin(call, world) : 0;
    case Collective::all_gather:
    case Collective::gather: return piece_elements(call, rank);
    default: return call.count;
  }
}

std::uint64_t output_elements(const ResolvedCall& call, int world, int rank) {
  switch (call.collective) {
    case Collective::all_gather: return piece_begin(call, world);
    case Collective::gather: return rank == call.root ? piece_begin(call, world) : 0;
    case Collective::reduce: return rank == call.root ? call.count : 0;
    case Collective::reduce_scatter:
    case Collective::scatter: return piece_elements(call, rank);
    case Collective::all_to_all:
      if (call.counts.empty()) return piece_begin(call, world);
      return total(std::span(call.counts).last(static_cast<std::size_t>(world)));
    default: return call.count;
  }
}

bool fits_board(const ResolvedCall& call, int world) {
  return call.compression.is_none() && call.counts.empty() &&
         input_elements(call, world, call.root) <= kBoardPayloadBytes / element_bytes(call.type);
}

}  // namespace qccl::engine
