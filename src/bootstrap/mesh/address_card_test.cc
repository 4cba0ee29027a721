#include "bootstrap/mesh/address_card.h"

#include <gtest/gtest.h>

#include "bootstrap/meeting/card_exchange.h"
#include "bootstrap/test_support.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

AddressCard largest_card() {
  return {.transport = TransportChoice::automatic,
          .boot_id = std::string(36, 'b'),
          .unix_name = std::string(37, 'u'),
          .first_cpu = 0xFFFFFFFF,
          .port = 65535,
          .addresses = std::vector(kMaxCardAddresses, std::string(45, 'a'))};
}

TEST(AddressCard, text_that_no_rank_writes_is_corrupt_data) {
  EXPECT_FALSE(decode_card(encode_card({.addresses = {"\x1B[2J"}})).ok());
  EXPECT_FALSE(decode_card(encode_card({.unix_name = "qccl\n"})).ok());
}

TEST(AddressCard, survives_encoding_and_the_largest_fits_in_a_record) {
  const AddressCard card = largest_card();
  const std::string bytes = encode_card(card);
  EXPECT_LE(bytes.size(), kMaxCardBytes);
  const auto decoded = decode_card(bytes).take_or_throw();
  EXPECT_EQ(encode_card(decoded), bytes);
  EXPECT_EQ(decoded.addresses, card.addresses);
}

TEST(AddressCard, every_cut_is_corrupt_data) {
  const std::string bytes = encode_card(largest_card());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decode_card(std::string_view(bytes).substr(0, length)).error().kind, ErrorKind::corrupt_data);
  }
}

TEST(AddressCard, hosts_differ_by_boot_id_and_an_unknown_one_matches_none) {
  AddressCard one = largest_card(), other = largest_card();
  EXPECT_TRUE(same_host(one, other));
  other.boot_id = "other";
  EXPECT_FALSE(same_host(one, other));
  one.boot_id.clear();
  other.boot_id.clear();
  EXPECT_FALSE(same_host(one, other));
}

TEST(AddressCard, a_card_that_does_not_match_names_the_rank) {
  const AddressCard own = largest_card();
  EXPECT_TRUE(check_card(own, 2, own).ok());
  AddressCard other = own;
  other.wire_version += 1;
  expect_failure(check_card(own, 2, other), ErrorKind::unsupported, "rank 2");
  other = own;
  other.addresses.clear();
  expect_failure(check_card(own, 2, other), ErrorKind::corrupt_data, "rank 2");
  AddressCard shm = own, far = own;
  shm.transport = far.transport = TransportChoice::shm;
  far.boot_id = "far";
  EXPECT_TRUE(check_card(shm, 2, shm).ok());
  expect_failure(check_card(shm, 2, far), ErrorKind::unsupported, "rank 2 is on another host");
}

TEST(Addresses, on_one_host_stay_on_it) {
  const auto chosen = choose_addresses({.world = 2, .master_address = "127.0.0.1"}).take_or_throw();
  EXPECT_EQ(chosen.listen_on, "127.0.0.1");
  EXPECT_EQ(chosen.published, std::vector<std::string>{"127.0.0.1"});
}

TEST(Addresses, between_hosts_exclude_loopback_if_there_is_another) {
  const auto chosen = choose_addresses({.world = 2, .local_world = 1, .master_address = "127.0.1.1"}).take_or_throw();
  EXPECT_EQ(chosen.listen_on, "");
  ASSERT_FALSE(chosen.published.empty());
  bool only_loopback = true;
  for (const auto& interface : os::list_interfaces("").take_or_throw()) {
    only_loopback &= interface.loopback || interface.link_local;
  }
  EXPECT_EQ(chosen.published.front().starts_with("127."), only_loopback);
}

TEST(Addresses, beside_the_programs_store_do_not_depend_on_the_master) {
  for (const char* master : {"no-such-host.invalid", "localhost", ""}) {
    const auto chosen =
        choose_addresses({.world = 2, .master_address = master, .has_own_store = true}, kForever, SteadyClock());
    ASSERT_TRUE(chosen.ok()) << master;
    EXPECT_EQ(chosen.value().listen_on, "") << master;
  }
}

TEST(Addresses, wait_for_the_master_until_the_deadline) {
  const SteadyClock clock;
  const TimePoint deadline = clock.now() + std::chrono::milliseconds(30);
  expect_failure(choose_addresses({.world = 2, .master_address = "no-such-host.invalid"}, deadline, clock),
                 ErrorKind::peer_lost, "no-such-host.invalid");
  EXPECT_GE(clock.now(), deadline);
}

TEST(Addresses, with_a_filter_are_those_that_pass) {
  LaunchIdentity launch{.world = 2, .interface_filter = "=lo", .filter_source = "NCCL_SOCKET_IFNAME"};
  const auto chosen = choose_addresses(launch).take_or_throw();
  EXPECT_EQ(chosen.published.front(), "127.0.0.1");
  launch.interface_filter = "=nosuch0";
  for (const char* words : {"NCCL_SOCKET_IFNAME is \"=nosuch0\"", "lo 127.0.0.1"}) {
    expect_failure(choose_addresses(launch), ErrorKind::invalid_argument, words);
  }
}

}  // namespace
}  // namespace qccl::bootstrap
