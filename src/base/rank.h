// A rank's number, as one type for each numbering: a rank in the world is never taken for a rank in a group. Plans and
// the public API have plain numbers. Only ranks in the world can be formatted: messages name no other.
#pragma once

#include <fmt/core.h>

#include <compare>
#include <concepts>
#include <cstddef>

namespace qccl {

template <class Numbering>
class Rank {
 public:
  constexpr Rank() = default;  // none
  explicit constexpr Rank(std::integral auto value) : value_(static_cast<int>(value)) {}

  constexpr bool is_none() const { return value_ < 0; }
  constexpr int value() const { return value_; }  // -1: none
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  constexpr Rank& operator++() {
    ++value_;
    return *this;
  }
  friend constexpr auto operator<=>(Rank, Rank) = default;

 private:
  int value_ = -1;
};

using WorldRank = Rank<struct WorldNumbering>;
using GroupRank = Rank<struct GroupNumbering>;

}  // namespace qccl

template <>
struct fmt::formatter<qccl::WorldRank> : fmt::formatter<int> {
  template <class Context>
  auto format(qccl::WorldRank rank, Context& context) const {
    return fmt::formatter<int>::format(rank.value(), context);
  }
};
