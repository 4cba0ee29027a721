// What the clients of a job's own store may write: JobKeys' keys, and only a rank that has its place ends the start.
//
// A client has rank R's place if its card is the one that the store keeps for R. So neither a client that only speaks
// the protocol nor a second process of a rank, whose card comes too late, ends the start of the others.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "bootstrap/meeting/job_keys.h"
#include "bootstrap/store/store_rules.h"

namespace qccl::bootstrap {

class JobRules final : public StoreRules {
 public:
  // everyone: for a job whose name is a secret of its ranks.
  enum class Enders : std::uint8_t { ranks, everyone };

  explicit JobRules(JobKeys keys, Enders enders = Enders::ranks) : keys_(std::move(keys)), enders_(enders) {}

  std::size_t expected_clients() const override { return static_cast<std::size_t>(keys_.world()); }
  std::size_t most_bytes() const override;
  std::string refusals_key() const override { return keys_.refusals_key(); }
  bool may_add(Client client, std::string_view key, std::int64_t delta) const override;
  bool may_set(Client client, std::string_view key, std::string_view value) const override;
  bool may_leave(std::string_view key, std::string_view value) const override { return keys_.may_set(key, value); }
  void has_set(Client client, std::string_view key, StoreState& state) override;
  void has_ended(Client client, StoreState& /*state*/) override { places_.erase(client); }

 private:
  bool may_end(Client client, std::string_view key) const;

  const JobKeys keys_;
  const Enders enders_;
  std::map<Client, std::uint32_t> places_;  // the generations in which the client has a place, a bit each
};

// The usual rules of a job.
std::shared_ptr<StoreRules> job_rules(const std::string& job, std::uint32_t restart, int world);

}  // namespace qccl::bootstrap
