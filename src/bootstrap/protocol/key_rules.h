// What the clients of a store may write, by the table of its keys (keys.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "bootstrap/protocol/keys.h"
#include "bootstrap/store/store_rules.h"

namespace qccl::bootstrap {

class KeyRules : public StoreRules {
 public:
  bool may_add(Client client, std::string_view key, std::int64_t delta) const override;
  bool may_set(Client client, std::string_view key, std::string_view value) const override;
  bool may_leave(std::string_view key, std::string_view value) const override;

 protected:
  // Empty for a key of no place that these rules are for. Keys are in their wire form.
  virtual std::optional<ParsedKey> parse(std::string_view key) const = 0;
  virtual bool is_time(Client client, const ParsedKey& key) const = 0;
};

// For a job's own store. A client has rank R's place if its card is the one that the store keeps for R. So neither a
// client that only speaks the protocol nor a second process of a rank, whose card comes too late, ends the start of the
// others.
class JobRules final : public KeyRules {
 public:
  JobRules(const std::string& job, std::uint32_t restart, int world);

  std::size_t expected_clients() const override { return static_cast<std::size_t>(world_); }
  std::size_t most_bytes() const override;
  std::string refusals_key() const override { return prefix_ + key("refused"); }
  void has_set(Client client, std::string_view key, StoreState& state) override;
  void has_ended(Client client, StoreState& /*state*/) override { places_.erase(client); }

 private:
  std::optional<ParsedKey> parse(std::string_view key) const override;
  bool is_time(Client client, const ParsedKey& key) const override;

  const std::string prefix_;
  const std::string list_prefix_;
  const int world_;
  std::map<Client, std::uint32_t> places_;  // the generations in which the client has a place, a bit each
};

}  // namespace qccl::bootstrap
