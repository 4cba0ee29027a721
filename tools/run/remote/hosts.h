// The hosts of a job: from a file or a list, and how many ranks each gets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qccl::tools {

struct Host {
  std::string name;  // as ssh takes it
  int slots = 1;
  bool counted = false;  // slots were given
  int max_slots = 0;     // 0: as many as slots
  std::string where;     // for messages: "hosts.txt:3"
};

// A host's part of a job.
struct HostShare {
  Host host;
  int first_rank = 0;
  int ranks = 0;
};

// Lines `HOST slots=4 max_slots=8` (DeepSpeed, Open MPI) or `HOST:4` (MPICH); no number means 1; '#' begins a comment.
// std::invalid_argument names file and line.
std::vector<Host> parse_hostfile(std::string_view text, const std::string& file);
// "a:2,b". std::invalid_argument.
std::vector<Host> parse_host_list(std::string_view list);
// Those of `all` that `list` names, in its order; a number there counts instead of the slots, and can't exceed them.
// std::invalid_argument if a host isn't there, with `file`.
std::vector<Host> choose_hosts(const std::vector<Host>& all, std::string_view list, const std::string& file);

// Fills host by host, first all slots, then up to max_slots. `ranks` is the number of slots if not given.
// std::invalid_argument if there are too few.
std::vector<HostShare> place_ranks(const std::vector<Host>& hosts, std::optional<int> ranks);

// Without "user@" and the brackets of an IPv6 address.
std::string address_of(const std::string& name);
// True if the name is this host's own or a loopback address; nobody has to log in there.
bool is_this_host(const std::string& name);
bool is_loopback(const std::string& address);

}  // namespace qccl::tools
