#include "bootstrap/protocol/key_rules.h"

#include "bootstrap/protocol/formats.h"
#include "bootstrap/store/store_protocol.h"
#include "bootstrap/store/store_service.h"

namespace qccl::bootstrap {
namespace {

std::uint32_t bit_of(std::int64_t generation) { return std::uint32_t{1} << generation; }
static_assert(kMaxGenerations < 32);

bool is_count(Format format) { return format == Format::count || format == Format::closers; }

bool is_clients(const std::optional<ParsedKey>& key) { return key && key->row->writer != Writer::server; }

}  // namespace

bool KeyRules::may_add(Client client, std::string_view name, std::int64_t delta) const {
  if (delta == 0) return true;
  const auto key = delta == 1 ? parse(name) : std::nullopt;
  return is_clients(key) && is_count(key->row->format) && is_time(client, *key);
}

bool KeyRules::may_set(Client client, std::string_view name, std::string_view value) const {
  const auto key = parse(name);
  return is_clients(key) && may_be_set(key->row->format, value) && is_time(client, *key);
}

bool KeyRules::may_leave(std::string_view name, std::string_view value) const {
  const auto key = parse(name);
  return key && key->row->writer == Writer::rank && may_be_set(key->row->format, value);
}

JobRules::JobRules(const std::string& job, std::uint32_t restart, int world)
    : prefix_(wire_key(key_prefix(job, restart))),
      list_prefix_(wire_key(key_prefix(door_name(job), 0))),
      world_(world) {}

std::size_t JobRules::most_bytes() const { return StoreState::kMaxBytes; }

std::optional<ParsedKey> JobRules::parse(std::string_view name) const {
  if (name.starts_with(prefix_)) return parse_key(Place::start, name.substr(prefix_.size()));
  if (name.starts_with(list_prefix_)) return parse_key(Place::list, name.substr(list_prefix_.size()));
  return std::nullopt;
}

bool JobRules::is_time(Client client, const ParsedKey& key) const {
  if (key.row->when == When::any_time) return true;
  const auto found = places_.find(client);
  return found != places_.end() && (found->second & bit_of(key.numbers[0])) != 0;
}

void JobRules::has_set(Client client, std::string_view name, StoreState& /*state*/) {
  const auto key = parse(name);
  if (key && key->is("G/card/R") && key->numbers[1] < world_) places_[client] |= bit_of(key->numbers[0]);
}

}  // namespace qccl::bootstrap
