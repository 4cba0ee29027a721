#include "tools/run/remote/hosts.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace qccl::tools {
namespace {

// "a 2 0, b 1 4": name, slots, max_slots.
std::string text_of(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", host.name, host.slots, host.max_slots);
  }
  return text;
}

std::string text_of(const std::vector<HostShare>& shares) {
  std::string text;
  for (const HostShare& share : shares) {
    text += fmt::format("{}{} {}+{}", text.empty() ? "" : ", ", share.host.name, share.first_rank, share.ranks);
  }
  return text;
}

template <class Function>
std::string refusal(const Function& function) {
  try {
    function();
  } catch (const std::invalid_argument& wrong) {
    return wrong.what();
  }
  return "accepted";
}

TEST(Hosts, files_are_read_in_the_forms_of_deepspeed_open_mpi_and_mpich) {
  const auto hosts = parse_hostfile(
      "# our machines\n"
      "node1 slots=4\n"
      "\n"
      "  node2\tslots=2 max_slots=8   # the large one\r\n"
      "node3 slots=1 max-slots=3\n"
      "node4:6\n"
      "user@node5\n"
      "[fd00::1]:2\n"
      "fd00::2 slots=3",
      "f");
  EXPECT_EQ(text_of(hosts), "node1 4 0, node2 2 8, node3 1 3, node4 6 0, user@node5 1 0, [fd00::1] 2 0, fd00::2 3 0");
  EXPECT_EQ(hosts[1].where, "f:4");
}

TEST(Hosts, a_bad_line_is_named) {
  const auto told = [](const char* text) { return refusal([&] { parse_hostfile(text, "f"); }); };
  EXPECT_EQ(told("a slots=2\nb slots=x\n"), "f:2: 'slots=x' has no number of slots from 1 to 65536");
  EXPECT_EQ(told("a slots=0"), "f:1: 'slots=0' has no number of slots from 1 to 65536");
  EXPECT_EQ(told("a slots=-1"), "f:1: 'slots=-1' has no number of slots from 1 to 65536");
  EXPECT_EQ(told("a slots=2.5"), "f:1: 'slots=2.5' has no number of slots from 1 to 65536");
  EXPECT_EQ(told("a slots = 4"), "f:1: 'slots' has no number of slots from 1 to 65536");
  EXPECT_EQ(told("a 4"), "f:1: '4' is neither slots=N nor max_slots=N, written without blanks");
  EXPECT_EQ(told("a slots=4 max_slots=2"), "f:1: host 'a' has slots=4, more than max_slots=2");
  EXPECT_EQ(told("slots=4"), "f:1: 'slots=4' is no host: expected 'HOST slots=N' or 'HOST:N'");
  EXPECT_EQ(told("-oProxyCommand=x"), "f:1: '-oProxyCommand=x' is no host: expected 'HOST slots=N' or 'HOST:N'");
  EXPECT_EQ(told("a:2:3"), "f:1: 'a:2:3' is no host: expected 'HOST slots=N' or 'HOST:N'");
  EXPECT_EQ(told("[a]:2\n[fd00::x]:3"), "f:2: '[fd00::x]:3' is no host: expected 'HOST slots=N' or 'HOST:N'");
  EXPECT_EQ(told("user@"), "f:1: 'user@' is no host: expected 'HOST slots=N' or 'HOST:N'");
  EXPECT_EQ(told("a slots=1\n\nb\na slots=2"),
            "f:4: host 'a' is there twice, first at f:1: give it once, with all its slots");
  EXPECT_EQ(told("# nothing\n\n"), "f: there is no host in it: expected lines 'HOST slots=N'");
}

TEST(Hosts, a_list_names_hosts_or_chooses_those_of_a_file) {
  EXPECT_EQ(text_of(parse_host_list("a:2,b,c:3")), "a 2 0, b 1 0, c 3 0");
  EXPECT_EQ(refusal([] { parse_host_list("a,,b"); }), "--hosts: '' is no host: expected 'HOST slots=N' or 'HOST:N'");
  EXPECT_EQ(refusal([] { parse_host_list("a:2,a"); }),
            "--hosts: host 'a' is there twice, first at --hosts: give it once, with all its slots");
  const auto all = parse_hostfile("a slots=4\nb slots=2\nc slots=2", "f");
  EXPECT_EQ(text_of(choose_hosts(all, "c,a:3", "f")), "c 2 0, a 3 0");
  const auto alike = parse_hostfile("a slots=4\nba slots=2", "f");
  EXPECT_EQ(text_of(choose_hosts(alike, "ba:1,a", "f")), "ba 1 0, a 4 0");
  EXPECT_EQ(refusal([&] { choose_hosts(all, "a,d", "f"); }), "--hosts: host 'd' is not in f");
  EXPECT_EQ(refusal([&] { choose_hosts(all, "b:3", "f"); }), "--hosts: 3 slots of 'b', but f:2 gives it 2");
}

TEST(Hosts, ranks_fill_slots_in_order_and_then_what_is_beyond_them) {
  const auto hosts = parse_hostfile("a slots=2 max_slots=3\nb slots=2\nc slots=1 max_slots=4", "f");
  EXPECT_EQ(text_of(place_ranks(hosts, std::nullopt)), "a 0+2, b 2+2, c 4+1");
  EXPECT_EQ(text_of(place_ranks(hosts, 3)), "a 0+2, b 2+1");
  EXPECT_EQ(text_of(place_ranks(hosts, 7)), "a 0+3, b 3+2, c 5+2");
  EXPECT_EQ(text_of(place_ranks(hosts, 9)), "a 0+3, b 3+2, c 5+4");
  EXPECT_EQ(refusal([&] { place_ranks(hosts, 10); }),
            "10 ranks, but there are 9 slots: give hosts more slots, or start fewer ranks");
}

TEST(Hosts, addresses_are_names_without_user_and_brackets) {
  EXPECT_EQ(address_of("user@node5"), "node5");
  EXPECT_EQ(address_of("[fd00::1]"), "fd00::1");
  EXPECT_TRUE(is_this_host("localhost"));
  EXPECT_TRUE(is_this_host("127.0.0.1"));
  EXPECT_FALSE(is_this_host("no-such-host"));
}

}  // namespace
}  // namespace qccl::tools
