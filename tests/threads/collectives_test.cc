// The rooted collectives, the exchange and the forms with a count for each rank, through the public
// API over real shared memory (small: the board) and TCP, ranks as threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "support/error_of.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

class Collectives : public Transports {};

INSTANTIATE_TEST_SUITE_P(All, Collectives, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

// Element `i` of rank `from`'s data for rank `to`.
int value(int from, int to, std::size_t i) { return from * 1'000'000 + to * 10'000 + static_cast<int>(i % 9973); }

using Ints = std::vector<std::int32_t>;

Ints piece(int from, int to, std::size_t count) {
  Ints data;
  for (std::size_t i = 0; i < count; ++i) data.push_back(value(from, to, i));
  return data;
}

void append(Ints& all, const Ints& part) { all.insert(all.end(), part.begin(), part.end()); }

TEST_P(Collectives, rooted_collectives_and_the_exchange_move_the_right_data) {
  expect_success(4, [](Communicator& comm) {
    const int world = comm.size();
    const int self = comm.rank();
    const CallOptions options{.root = 2};
    for (const std::size_t count : {1u, 100u, 5000u, 100'003u}) {
      const bool is_root = self == 2;
      Ints for_all;
      Ints from_all;
      Ints gathered;
      for (int rank = 0; rank < world; ++rank) append(for_all, piece(self, rank, count));
      for (int rank = 0; rank < world; ++rank) append(from_all, piece(rank, self, count));
      for (int rank = 0; rank < world; ++rank) append(gathered, piece(rank, 0, count));

      Ints output(count * static_cast<std::size_t>(world));
      comm.gather(for_all.data(), is_root ? output.data() : nullptr, count, DataType::int32, options);
      EXPECT_TRUE(!is_root || output == gathered);
      comm.all_to_all(for_all.data(), output.data(), count, DataType::int32);
      EXPECT_EQ(output, from_all);
      output.resize(count);
      comm.scatter(is_root ? for_all.data() : nullptr, output.data(), count, DataType::int32, options);
      EXPECT_EQ(output, piece(2, self, count));

      Ints sum(count);
      for (std::size_t i = 0; i < count; ++i) {
        for (int rank = 0; rank < world; ++rank) sum[i] += value(rank, 0, i);
      }
      comm.reduce(for_all.data(), is_root ? output.data() : nullptr, count, DataType::int32, options);
      EXPECT_TRUE(!is_root || output == sum);
    }
  });
}

TEST_P(Collectives, each_rank_may_have_its_own_count) {
  expect_success(3, [](Communicator& comm) {
    const int self = comm.rank();
    const std::vector<std::size_t> counts = {0, 70'001, 5};
    const std::size_t own = counts[static_cast<std::size_t>(self)];
    Ints gathered;
    for (int rank = 0; rank < 3; ++rank) append(gathered, piece(rank, 0, counts[static_cast<std::size_t>(rank)]));
    Ints output(gathered.size());
    comm.all_gather_v(piece(self, 0, own).data(), output.data(), counts, DataType::int32);
    EXPECT_EQ(output, gathered);

    // Rank r sends rank p counts[(r + p) % 3] elements.
    const auto exchanged = [&](int one, int other) { return counts[static_cast<std::size_t>(one + other) % 3]; };
    std::vector<std::size_t> amounts;
    Ints sent;
    Ints expected;
    for (int peer = 0; peer < 3; ++peer) {
      amounts.push_back(exchanged(self, peer));
      append(sent, piece(self, peer, amounts.back()));
      append(expected, piece(peer, self, amounts.back()));
    }
    output.assign(expected.size(), 0);
    comm.all_to_all_v_async(sent.data(), amounts, output.data(), amounts, DataType::int32).wait();
    EXPECT_EQ(output, expected);
  });
}

// Pieces with a count for each rank, summed or moved, blocking or not.
class Ragged {
 public:
  explicit Ragged(Communicator& comm) : comm_(comm) {
    for (int rank = 0; rank < kWorld; ++rank) append(of_all_, piece(kRoot, rank, count(rank)));
  }

  void scatter(bool blocking) {
    const std::int32_t* input = is_root() ? of_all_.data() : nullptr;
    Ints output(count(comm_.rank()));
    if (blocking) comm_.scatter_v(input, output.data(), kCounts, DataType::int32, {.root = kRoot});
    if (!blocking) comm_.scatter_v_async(input, output.data(), kCounts, DataType::int32, {.root = kRoot}).wait();
    EXPECT_EQ(output, piece(kRoot, comm_.rank(), count(comm_.rank())));
  }

  void gather(bool blocking) {
    const Ints input = piece(kRoot, comm_.rank(), count(comm_.rank()));
    Ints output(is_root() ? of_all_.size() : 0);
    if (blocking) comm_.gather_v(input.data(), output.data(), kCounts, DataType::int32, {.root = kRoot});
    if (!blocking) comm_.gather_v_async(input.data(), output.data(), kCounts, DataType::int32, {.root = kRoot}).wait();
    EXPECT_TRUE(!is_root() || output == of_all_);
  }

  void reduce_scatter(bool blocking) {
    Ints input = of_all_;
    for (std::int32_t& element : input) element += comm_.rank();
    Ints output(count(comm_.rank()));
    if (blocking) comm_.reduce_scatter_v(input.data(), output.data(), kCounts, DataType::int32);
    if (!blocking) comm_.reduce_scatter_v_async(input.data(), output.data(), kCounts, DataType::int32).wait();
    Ints expected = piece(kRoot, comm_.rank(), output.size());
    for (std::int32_t& element : expected) element = kWorld * element + kWorld * (kWorld - 1) / 2;
    EXPECT_EQ(output, expected);
  }

 private:
  static constexpr int kWorld = 4;
  static constexpr int kRoot = 1;
  static constexpr std::array<std::size_t, kWorld> kCounts = {3, 0, 70'001, 517};

  static std::size_t count(int rank) { return kCounts[static_cast<std::size_t>(rank)]; }
  bool is_root() const { return comm_.rank() == kRoot; }

  Communicator& comm_;
  Ints of_all_;  // the root's pieces for all ranks
};

TEST_P(Collectives, pieces_of_their_own_size_are_scattered_gathered_and_added_blocking_and_not) {
  expect_success(4, [](Communicator& comm) {
    for (const bool blocking : {true, false}) {
      Ragged ragged(comm);
      ragged.scatter(blocking);
      ragged.gather(blocking);
      ragged.reduce_scatter(blocking);
    }
  });
}

struct Particle {
  double place;
  std::int16_t charge;
  friend bool operator==(const Particle&, const Particle&) = default;
};

TEST_P(Collectives, containers_of_any_element_are_gathered_scattered_and_exchanged) {
  expect_success(3, [](Communicator& comm) {
    const CallOptions to_last{.root = 2};
    const bool is_root = comm.rank() == 2;
    const auto particle = [](int from, int to) { return Particle{from + 0.5, static_cast<std::int16_t>(to)}; };
    std::vector<Particle> from_all;
    std::vector<Particle> for_all;
    for (int rank = 0; rank < 3; ++rank) from_all.push_back(particle(rank, comm.rank()));
    for (int rank = 0; rank < 3; ++rank) for_all.push_back(particle(comm.rank(), rank));

    std::vector<Particle> output(3);
    comm.all_to_all(for_all, output);
    EXPECT_EQ(output, from_all);
    std::vector<Particle> gathered(is_root ? 3 : 0);
    comm.gather(std::vector<Particle>{particle(comm.rank(), 2)}, gathered, to_last);
    EXPECT_TRUE(!is_root || gathered == from_all);
    std::vector<Particle> own(1);
    comm.scatter(is_root ? for_all : std::vector<Particle>{}, own, to_last);
    EXPECT_EQ(own[0], particle(2, comm.rank()));
  });
}

TEST_P(Collectives, containers_that_are_no_whole_parts_are_refused_where_they_are_used) {
  expect_success(2, [](Communicator& comm) {
    Ints four(4);
    Ints three(3);
    const auto refused = [](const std::function<void()>& call) { return error_of(call).kind; };
    const CallOptions to_self{.root = comm.rank()};
    EXPECT_EQ(refused([&] { comm.gather(four, four, to_self); }), ErrorKind::invalid_argument);
    EXPECT_EQ(refused([&] { comm.scatter(four, four, to_self); }), ErrorKind::invalid_argument);
    EXPECT_EQ(refused([&] { comm.all_to_all(three, three); }), ErrorKind::invalid_argument);
    EXPECT_EQ(refused([&] { comm.all_to_all(four, three); }), ErrorKind::invalid_argument);
  });
}

TEST_P(Collectives, an_exchange_in_place_or_with_too_few_counts_is_refused) {
  expect_success(2, [](Communicator& comm) {
    const auto refused = [](const std::function<void()>& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.kind() == ErrorKind::invalid_argument;
      }
      return false;
    };
    Ints data(20);
    const std::vector<std::size_t> one = {10};
    EXPECT_TRUE(refused([&] { comm.all_to_all(data.data(), data.data(), 10, DataType::int32); }));
    EXPECT_TRUE(refused([&] { comm.all_gather_v(data.data(), data.data(), one, DataType::int32); }));
    EXPECT_TRUE(refused([&] { comm.all_gather_v(data.data(), data.data(), {}, DataType::int32); }));
    EXPECT_TRUE(refused([&] { comm.reduce(data.data(), data.data(), 10, DataType::int32, {.root = 2}); }));
  });
}

}  // namespace
}  // namespace qccl::testing
