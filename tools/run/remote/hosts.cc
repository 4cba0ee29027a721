#include "tools/run/remote/hosts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <stdexcept>

namespace qccl::tools {
namespace {

constexpr int kMaxSlots = 65536;

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw std::invalid_argument(fmt::format("{}: {}", where, what));
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  constexpr std::string_view kBlank = " \t\r";
  for (auto begin = line.find_first_not_of(kBlank); begin != line.npos; begin = line.find_first_not_of(kBlank, begin)) {
    const auto end = std::min(line.find_first_of(kBlank, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

int slots_from(std::string_view text, std::string_view word, const std::string& where) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= 1 && number <= kMaxSlots) return number;
  fail(where, fmt::format("'{}' has no number of slots from 1 to {}", word, kMaxSlots));
}

bool is_ipv6(const std::string& address) {
  in6_addr bytes;
  return ::inet_pton(AF_INET6, address.substr(0, address.find('%')).c_str(), &bytes) == 1;
}

// "name", "name:4", "user@name", "[fd00::1]:4", "fd00::1".
Host parse_host(std::string_view word, const std::string& where) {
  Host host;
  host.where = where;
  const auto colon = word.rfind(':');
  const bool bracketed = word.find(']') != word.npos;
  const bool has_number = colon != word.npos && (bracketed ? colon > word.rfind(']') : word.find(':') == colon);
  host.name = word.substr(0, has_number ? colon : word.size());
  host.counted = has_number;
  if (has_number) host.slots = slots_from(word.substr(colon + 1), word, where);
  const std::string address = address_of(host.name);
  if (address.empty() || host.name.front() == '-' || host.name.find('=') != std::string::npos ||
      (address.find(':') != std::string::npos && !is_ipv6(address))) {
    fail(where, fmt::format("'{}' is no host: expected 'HOST slots=N' or 'HOST:N'", word));
  }
  return host;
}

void read_setting(std::string_view word, Host& host) {
  const auto equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = equals == word.npos ? std::string_view() : word.substr(equals + 1);
  if (name == "slots") {
    host.slots = slots_from(value, word, host.where);
  } else if (name == "max_slots" || name == "max-slots") {
    host.max_slots = slots_from(value, word, host.where);
  } else {
    fail(host.where, fmt::format("'{}' is neither slots=N nor max_slots=N, written without blanks", word));
  }
}

void add_host(std::vector<Host>& hosts, Host host) {
  if (host.max_slots != 0 && host.max_slots < host.slots) {
    fail(host.where,
         fmt::format("host '{}' has slots={}, more than max_slots={}", host.name, host.slots, host.max_slots));
  }
  for (const Host& other : hosts) {
    if (other.name != host.name) continue;
    fail(host.where, fmt::format("host '{}' is there twice, first at {}: give it once, with all its slots", host.name,
                                 other.where));
  }
  hosts.push_back(std::move(host));
}

std::string own_name() {
  char name[256] = {};
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace

std::vector<Host> parse_hostfile(std::string_view text, const std::string& file) {
  std::vector<Host> hosts;
  int number = 0;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    const auto words = words_of(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    Host host = parse_host(words[0], fmt::format("{}:{}", file, number));
    for (std::size_t i = 1; i < words.size(); ++i) read_setting(words[i], host);
    add_host(hosts, std::move(host));
  }
  if (hosts.empty()) fail(file, "there is no host in it: expected lines 'HOST slots=N'");
  return hosts;
}

std::vector<Host> parse_host_list(std::string_view list) {
  std::vector<Host> hosts;
  while (!list.empty()) {
    const auto end = std::min(list.find(','), list.size());
    add_host(hosts, parse_host(list.substr(0, end), "--hosts"));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  if (hosts.empty()) fail("--hosts", "no host is named: expected HOST:N,HOST:N");
  return hosts;
}

std::vector<Host> choose_hosts(const std::vector<Host>& all, std::string_view list, const std::string& file) {
  std::vector<Host> chosen;
  for (const Host& wanted : parse_host_list(list)) {
    const auto known = std::find_if(all.begin(), all.end(), [&](const Host& host) { return host.name == wanted.name; });
    if (known == all.end()) fail("--hosts", fmt::format("host '{}' is not in {}", wanted.name, file));
    Host host = *known;
    const int limit = std::max(host.slots, host.max_slots);
    if (wanted.counted && wanted.slots > limit) {
      fail("--hosts", fmt::format("{} slots of '{}', but {} gives it {}", wanted.slots, host.name, host.where, limit));
    }
    if (wanted.counted) host.slots = wanted.slots;
    chosen.push_back(std::move(host));
  }
  return chosen;
}

std::vector<HostShare> place_ranks(const std::vector<Host>& hosts, std::optional<int> ranks) {
  const auto add = [](int sum, const Host& host) { return sum + host.slots; };
  const auto add_limit = [](int sum, const Host& host) { return sum + std::max(host.slots, host.max_slots); };
  const int limit = std::accumulate(hosts.begin(), hosts.end(), 0, add_limit);
  int left = ranks.value_or(std::accumulate(hosts.begin(), hosts.end(), 0, add));
  if (left > limit) {
    throw std::invalid_argument(
        fmt::format("{} ranks, but there are {} slots: give hosts more slots, or start fewer ranks", left, limit));
  }
  std::vector<HostShare> shares;
  for (const Host& host : hosts) {
    shares.push_back({host, 0, std::min(left, host.slots)});
    left -= shares.back().ranks;
  }
  int first_rank = 0;
  for (HostShare& share : shares) {
    const int more = std::min(left, std::max(0, share.host.max_slots - share.host.slots));
    share.ranks += more;
    left -= more;
    share.first_rank = first_rank;
    first_rank += share.ranks;
  }
  std::erase_if(shares, [](const HostShare& share) { return share.ranks == 0; });
  return shares;
}

std::string address_of(const std::string& name) {
  std::string address = name.substr(name.rfind('@') + 1);
  if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
  return address;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

bool is_this_host(const std::string& name) {
  const std::string own = own_name();
  return is_loopback(address_of(name)) || name == own || name == own.substr(0, own.find('.'));
}

}  // namespace qccl::tools
