// The rooted collectives, the exchange and the forms with a count for each rank, through the public
// API over real shared memory (small: the board) and TCP, ranks as threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class Collectives : public Transports {};

INSTANTIATE_TEST_SUITE_P(All, Collectives, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

// Element `i` of what rank `from` has for rank `to`.
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
