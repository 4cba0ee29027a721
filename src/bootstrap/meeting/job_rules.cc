#include "bootstrap/meeting/job_rules.h"

#include "bootstrap/store/store_service.h"

namespace qccl::bootstrap {
namespace {

std::uint32_t bit_of(int generation) { return std::uint32_t{1} << generation; }
static_assert(JobKeys::kMaxGenerations < 32);

}  // namespace

std::size_t JobRules::most_bytes() const { return StoreState::kMaxBytes; }

bool JobRules::may_end(Client client, std::string_view key) const {
  const int generation = keys_.ended_by(key);
  if (generation == 0 || enders_ == Enders::everyone) return true;
  const auto found = places_.find(client);
  return found != places_.end() && (found->second & bit_of(generation)) != 0;
}

bool JobRules::may_add(Client client, std::string_view key, std::int64_t delta) const {
  return delta == 0 || (keys_.may_add(key, delta) && may_end(client, key));
}

bool JobRules::may_set(Client client, std::string_view key, std::string_view value) const {
  return keys_.may_set(key, value) && may_end(client, key);
}

void JobRules::has_set(Client client, std::string_view key, StoreState& /*state*/) {
  const int generation = keys_.entered_by(key);
  if (generation != 0) places_[client] |= bit_of(generation);
}

std::shared_ptr<StoreRules> job_rules(const std::string& job, std::uint32_t restart, int world) {
  return std::make_shared<JobRules>(JobKeys(job, restart, world));
}

}  // namespace qccl::bootstrap
