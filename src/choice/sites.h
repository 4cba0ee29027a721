// The sites of a group: ranks near each other and far from others, as measured or as QCCL_SITES says.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::comm {

// How far apart the ranks of a group are; the same on all of them. Round trips are seconds.
struct Distance {
  double round_trip = 0;       // the longest between two ranks
  double near_round_trip = 0;  // the longest inside a site
  std::vector<int> sites{};    // by group rank; empty: all are in one
};

// The site of each world rank, from text such as "0-3,4-7": sites are separated by commas, the ranges of a site by plus
// signs. None of empty text. InvalidArgument that names QCCL_SITES unless every rank from 0 on is there once.
Result<std::vector<int>> parse_sites(std::string_view text);

// InvalidArgument unless the text is empty or names the ranks of a world of that size.
Status check_sites(std::string_view text, int world);

// The longest text that parse_sites() accepts.
inline constexpr std::size_t kMaxSitesBytes = 1024;

// `nearest`: by group rank, the smallest rank that this one is near to, or itself. Ranks that others link are in one
// site.
std::vector<int> sites_of_nearest(std::span<const std::uint64_t> nearest);

// Empty if all ranks are in one site.
std::vector<int> unless_one(std::vector<int> sites);

}  // namespace qccl::comm
