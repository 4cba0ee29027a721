// The shares of owners on unequal lines (Request::shares).
//
// In an all_reduce whose chunks have owners, a host with k of N ranks that own the part x of S bytes sends, and
// receives, (k + (N - 2k) x) S bytes over its line: (1 + (N - 2) x) S if it has one rank. The best shares make the
// longest of these times as short as possible. One of eight hosts at half the others' rate then owns nothing, and the
// call takes 1.14 times as long as with equal lines, in place of twice.
#pragma once

#include <span>
#include <vector>

namespace qccl::plan {

inline constexpr int kEqualShare = 100;  // of a rank: shares are in percent of an equal one

// The lines of a group's hosts.
struct HostLines {
  std::vector<int> hosts;     // of each rank: indexes of `rates`, some of which may have no rank
  std::vector<double> rates;  // of each host's line, bytes a second each way; 0: unknown
};

// The seconds that a byte of such an all_reduce takes on the line that needs the most time. `shares` of each rank;
// empty: equal ones. All rates are known.
double seconds_per_byte(const HostLines& lines, std::span<const int> shares);

// The shares to use from now on, where `in_use` have been used: empty are equal ones, which stay unless others save
// 5 % of the time, as do those in use. Equal where a rate is unknown.
std::vector<int> shares_of(const HostLines& lines, const std::vector<int>& in_use);

// The rate that lines would have, if all had the same, on which equal shares take as long as these shares take on these
// lines: what the price of a call that uses them assumes.
double equivalent_rate(const HostLines& lines, std::span<const int> shares);

}  // namespace qccl::plan
