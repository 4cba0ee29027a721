#include "choice/sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"

namespace qccl::comm {
namespace {

constexpr int kMostRanks = 1 << 16;
constexpr int kNone = -1;

// "4" or "4-7": first and last.
std::optional<std::pair<int, int>> parse_range(std::string_view text) {
  const auto dash = text.find('-');
  const auto first = parse_number<int>(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_number<int>(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first || *last >= kMostRanks) return std::nullopt;
  return std::pair(*first, *last);
}

}  // namespace

Result<std::vector<int>> parse_sites(std::string_view text) {
  const auto fail = [&](const std::string& what) {
    return Failure(ErrorKind::invalid_argument,
                   fmt::format("QCCL_SITES={}: {}; list the ranks of each site, every rank once, as in 0-3,4-7 or "
                               "0-1+4-5,2-3",
                               text.substr(0, kMaxSitesBytes), what));
  };
  if (text.size() > kMaxSitesBytes) return fail(fmt::format("is longer than {} characters", kMaxSitesBytes));
  std::vector<int> sites;
  if (text.empty()) return sites;
  int site = 0;
  for (const std::string_view part : split(text, ',')) {
    for (const std::string_view range : split(part, '+')) {
      const auto ends = parse_range(range);
      if (!ends) return fail(fmt::format("\"{}\" is no range of ranks", range));
      for (int rank = ends->first; rank <= ends->second; ++rank) {
        const auto index = static_cast<std::size_t>(rank);
        if (index >= sites.size()) sites.resize(index + 1, kNone);
        if (std::exchange(sites[index], site) != kNone) return fail(fmt::format("rank {} is listed twice", rank));
      }
    }
    ++site;
  }
  const auto missing = std::ranges::find(sites, kNone);
  if (missing != sites.end()) return fail(fmt::format("rank {} is missing", missing - sites.begin()));
  return sites;
}

Status check_sites(std::string_view text, int world) {
  if (text.empty()) return {};
  QCCL_ASSIGN(const std::vector<int> sites, parse_sites(text));
  const int ranks = static_cast<int>(sites.size());
  if (ranks == world) return {};
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("QCCL_SITES={} is for {} ranks, this job has {}", text, ranks, world));
}

std::vector<int> sites_of_nearest(std::span<const std::uint64_t> nearest) {
  std::vector<int> sites;
  for (std::size_t rank = 0; rank < nearest.size(); ++rank) {
    const auto near = static_cast<std::size_t>(std::min<std::uint64_t>(nearest[rank], rank));
    sites.push_back(near == rank ? static_cast<int>(rank) : sites[near]);
  }
  return sites;
}

std::vector<int> unless_one(std::vector<int> sites) {
  const bool has_several = std::ranges::adjacent_find(sites, std::not_equal_to<>()) != sites.end();
  return has_several ? std::move(sites) : std::vector<int>();
}

}  // namespace qccl::comm
