// The keys that ranks other than 0 may write into the store that rank 0 serves: those of one job (the table in
// card_exchange.h), with values of their format. Everything else comes from a stranger. Limits of ranks and generations
// bound the total, even if strangers write it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl::bootstrap {

class JobKeys {
 public:
  // More generations than a job begins while one process of rank 0 serves it.
  static constexpr int kMaxGenerations = 16;
  // Every allowed request is shorter.
  static constexpr std::size_t kMaxRequestBytes = 8 * 1024;

  // The job as in KeySpace. `world`: the number of expected ranks.
  JobKeys(const std::string& job, std::uint32_t restart, int world);

  int world() const { return world_; }
  // `key` is in its wire form. Adding 0 only reads.
  bool may_add(std::string_view key, std::int64_t delta) const;
  bool may_set(std::string_view key, std::string_view value) const;

 private:
  // "3/card/1": generation 3, name "card", rank 1. Without a rank: -1.
  struct Parts {
    std::string_view name;
    int rank = -1;
  };
  std::optional<Parts> parts_of(std::string_view key) const;

  std::string prefix_;
  int world_;
};

}  // namespace qccl::bootstrap
