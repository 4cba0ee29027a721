// Meshes: the groups along dimensions, made one by one or all at once, over real shared memory and TCP.
#include <gtest/gtest.h>

#include <numeric>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class Meshes : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Meshes, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

std::vector<int> members_of(Communicator part, int own) {
  std::vector<int> members(static_cast<std::size_t>(part.size()));
  part.all_gather(std::vector<int>{own}, members);
  return members;
}

TEST_P(Meshes, have_a_group_along_every_set_of_dimensions) {
  expect_success(8, [](Communicator& world) {
    Mesh mesh(world, {{"pp", 2}, {"dp", 2}, {"tp", 2}});
    EXPECT_EQ(4 * mesh.coordinate("pp") + 2 * mesh.coordinate("dp") + mesh.coordinate("tp"), world.rank());
    for (const char* along : {"tp", "dp", "pp", "dp-tp", "tp-pp", "pp-dp", "pp-dp-tp"}) {
      Communicator group = mesh.group(along);
      EXPECT_EQ(members_of(group, world.rank()), mesh.shape().group_of(world.rank(), along)) << along;
    }
  });
}

TEST_P(Meshes, make_a_group_once_and_name_it_by_its_place) {
  expect_success(4, [](Communicator& world) {
    Mesh mesh(world, {{"dp", 2}, {"tp", 2}});
    const std::string dp = mesh.group("dp").name();
    EXPECT_EQ(dp, "dp of tp=" + std::to_string(world.rank() % 2));
    // If a second call made another group, the rank would hang while its peers use the first one.
    std::vector<float> ones(100, 1.0F);
    if (world.rank() % 2 == 0) mesh.group("dp");
    mesh.group("dp").all_reduce(ones);
    EXPECT_EQ(ones[99], 2.0F);
    EXPECT_EQ(mesh.group("tp-dp").name(), "dp-tp");
  });
}

// Ranks make their groups at different times and in different orders.
TEST_P(Meshes, make_groups_without_the_other_ranks) {
  expect_success(4, [](Communicator& world) {
    Mesh mesh(world, {{"dp", 2}, {"tp", 2}});
    if (world.rank() < 2) {
      EXPECT_EQ(members_of(mesh.group("tp"), world.rank()), (std::vector<int>{0, 1}));
      world.send(std::vector<int>{1}, world.rank() + 2);
    } else {
      std::vector<int> received(1);
      world.recv(received, world.rank() - 2);  // only then
      EXPECT_EQ(members_of(mesh.group("tp"), world.rank()), (std::vector<int>{2, 3}));
    }
  });
}

TEST_P(Meshes, make_groups_at_once_and_lie_over_subgroups) {
  expect_success(6, [](Communicator& world) {
    auto part = world.split(world.rank() < 4 ? 0 : -1, -world.rank());  // 3 2 1 0
    if (!part) return;
    Mesh mesh(*part, MeshShape::ordered("tp-dp", {{"tp", 2}, {"dp", 2}}));
    mesh.make_groups({"tp", "dp", "tp-dp"});
    EXPECT_EQ(members_of(mesh.group("tp"), world.rank()),
              world.rank() >= 2 ? (std::vector<int>{3, 2}) : (std::vector<int>{1, 0}));
    EXPECT_EQ(members_of(mesh.group("tp-dp"), world.rank()), (std::vector<int>{3, 2, 1, 0}));
  });
}

TEST_P(Meshes, of_another_size_than_the_group_are_refused_with_both) {
  expect_success(3, [](Communicator& world) {
    try {
      Mesh(world, {{"dp", 2}, {"tp", 2}});
      ADD_FAILURE() << "a mesh of 4 on 3 ranks";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_STREQ(error.what(), "QCCL mesh: dp=2 x tp=2 is for 4 ranks, group 'world' has 3");
    }
    Mesh mesh(world, {{"dp", 3}});
    EXPECT_THROW(mesh.group("pp"), Error);
    EXPECT_EQ(mesh.group("dp").size(), 3);
  });
}

}  // namespace
}  // namespace qccl::testing
