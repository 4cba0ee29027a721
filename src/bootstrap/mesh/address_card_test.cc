#include "bootstrap/mesh/address_card.h"

#include <gtest/gtest.h>

#include "bootstrap/meeting/card_exchange.h"
#include "os/net/interfaces.h"

namespace qccl::bootstrap {
namespace {

AddressCard largest_card() {
  AddressCard card;
  card.transport = TransportChoice::automatic;
  card.boot_id = std::string(36, 'b');
  card.unix_name = std::string(37, 'u');
  card.first_cpu = 0xFFFFFFFF;
  card.port = 65535;
  card.addresses.assign(kMaxCardAddresses, std::string(45, 'a'));
  return card;
}

TEST(AddressCard, text_that_no_rank_writes_is_corrupt_data) {
  AddressCard card;
  card.addresses = {"\x1B[2J"};
  EXPECT_FALSE(decode_card(encode_card(card)).ok());
  card.addresses.clear();
  card.unix_name = "qccl\n";
  EXPECT_FALSE(decode_card(encode_card(card)).ok());
}

TEST(AddressCard, comes_back_and_the_largest_fits_in_a_record) {
  const AddressCard card = largest_card();
  const std::string bytes = encode_card(card);
  EXPECT_LE(bytes.size(), kMaxCardBytes);
  auto back = decode_card(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->boot_id, card.boot_id);
  EXPECT_EQ(back->unix_name, card.unix_name);
  EXPECT_EQ(back->first_cpu, card.first_cpu);
  EXPECT_EQ(back->port, card.port);
  EXPECT_EQ(back->addresses, card.addresses);
}

TEST(AddressCard, every_cut_is_corrupt_data) {
  const std::string bytes = encode_card(largest_card());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decode_card(std::string_view(bytes).substr(0, length)).error().kind, ErrorKind::corrupt_data);
  }
}

TEST(AddressCard, hosts_are_told_apart_by_boot_id_and_an_unknown_one_matches_nobody) {
  AddressCard one = largest_card(), other = largest_card();
  EXPECT_TRUE(same_host(one, other));
  other.boot_id = "other";
  EXPECT_FALSE(same_host(one, other));
  one.boot_id.clear();
  other.boot_id.clear();
  EXPECT_FALSE(same_host(one, other));
}

TEST(AddressCard, what_does_not_fit_together_names_the_rank) {
  const AddressCard own = largest_card();
  EXPECT_TRUE(check_card(own, 2, own).ok());
  AddressCard other = own;
  other.wire_version += 1;
  EXPECT_EQ(check_card(own, 2, other).error().kind, ErrorKind::unsupported);
  EXPECT_NE(check_card(own, 2, other).error().message.find("rank 2"), std::string::npos);
  other = own;
  other.addresses.clear();
  EXPECT_EQ(check_card(own, 2, other).error().kind, ErrorKind::corrupt_data);
  AddressCard shm = own, far = own;
  shm.transport = far.transport = TransportChoice::shm;
  far.boot_id = "far";
  EXPECT_TRUE(check_card(shm, 2, shm).ok());
  EXPECT_NE(check_card(shm, 2, far).error().message.find("rank 2 is on another host"), std::string::npos);
}

TEST(Addresses, of_one_host_stay_on_it) {
  Membership membership;
  membership.world = 2;
  membership.master_address = "127.0.0.1";
  const auto chosen = choose_addresses(membership).take_or_throw();
  EXPECT_EQ(chosen.listen_on, "127.0.0.1");
  EXPECT_EQ(chosen.published, std::vector<std::string>{"127.0.0.1"});
}

TEST(Addresses, of_several_hosts_leave_loopback_out_if_there_is_anything_else) {
  Membership membership;
  membership.world = 2;
  membership.local_world = 1;
  membership.master_address = "127.0.1.1";
  const auto chosen = choose_addresses(membership).take_or_throw();
  EXPECT_EQ(chosen.listen_on, "");
  ASSERT_FALSE(chosen.published.empty());
  bool only_loopback = true;
  for (const auto& interface : os::list_interfaces("").take_or_throw()) {
    only_loopback &= interface.loopback || interface.link_local;
  }
  EXPECT_EQ(chosen.published.front().starts_with("127."), only_loopback);
}

TEST(Addresses, of_a_filter_are_those_that_pass) {
  Membership membership;
  membership.world = 2;
  membership.interface_filter = "=lo";
  membership.filter_source = "NCCL_SOCKET_IFNAME";
  const auto chosen = choose_addresses(membership).take_or_throw();
  EXPECT_EQ(chosen.published.front(), "127.0.0.1");
  membership.interface_filter = "=nosuch0";
  const auto none = choose_addresses(membership);
  EXPECT_EQ(none.error().kind, ErrorKind::invalid_argument);
  EXPECT_NE(none.error().message.find("NCCL_SOCKET_IFNAME is \"=nosuch0\""), std::string::npos) << none.error().message;
}

}  // namespace
}  // namespace qccl::bootstrap
