// Windows through the public API, over real shared memory and TCP.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "support/error_of.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

class Windows : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Windows, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

std::vector<std::uint8_t> pattern(int from, std::size_t bytes) {
  std::vector<std::uint8_t> data(bytes);
  std::iota(data.begin(), data.end(), static_cast<std::uint8_t>(17 * from + 1));
  return data;
}

Window open(Communicator& comm, std::vector<std::uint8_t>& memory, std::uint64_t label = 0) {
  return comm.open_window(memory.data(), memory.size(), label);
}

void put(Window& window, const std::vector<std::uint8_t>& data, int to, std::size_t offset) {
  window.put({data.data(), data.size(), to, offset});
}

TEST_P(Windows, take_puts_of_any_size_at_any_offset_from_every_rank) {
  expect_success(3, [](Communicator& comm) {
    for (const std::size_t bytes : {0, 1, 3, 4097, 65'536, 65'537, 3'000'001}) {
      const std::size_t share = bytes + 5;  // odd offsets; the bytes between the puts stay as they are
      std::vector<std::uint8_t> memory(3 * share, 200);
      Window window = open(comm, memory);
      for (int to = 0; to < 3; ++to) {
        put(window, pattern(comm.rank(), bytes), to, static_cast<std::size_t>(comm.rank()) * share + 3);
      }
      for (int from = 0; from < 3; ++from) window.wait_signal(from);
      for (int from = 0; from < 3; ++from) {
        std::vector<std::uint8_t> expected(3, 200);
        const auto data = pattern(from, bytes);
        expected.insert(expected.end(), data.begin(), data.end());
        expected.insert(expected.end(), 2, 200);
        const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(from) * share);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), begin)) << bytes << " bytes of rank " << from;
      }
      window.close();
    }
  });
}

TEST_P(Windows, take_the_puts_of_a_rank_in_their_order) {
  expect_success(2, [](Communicator& comm) {
    constexpr int kPuts = 200;
    std::vector<std::uint8_t> memory(300'000);
    Window window = open(comm, memory);
    std::vector<std::vector<std::uint8_t>> sent;  // large and small in turn, on top of each other
    std::vector<Work> works;
    for (int i = 0; i < kPuts; ++i) sent.emplace_back(i % 7 == 0 ? 300'000 : 8, static_cast<std::uint8_t>(i));
    for (const auto& data : sent) works.push_back(window.put_async({data.data(), data.size(), 1 - comm.rank(), 0}));
    for (int i = 0; i < kPuts; ++i) window.wait_signal(1 - comm.rank());
    EXPECT_EQ(memory[7], kPuts - 1);
    EXPECT_EQ(memory[8], (kPuts - 1) / 7 * 7) << "the last large put";
    for (const Work& work : works) work.wait();
    window.close();
  });
}

TEST_P(Windows, of_several_threads_do_not_mix) {
  expect_success(2, [](Communicator& comm) {
    constexpr std::size_t kShare = 5000;
    std::vector<std::uint8_t> memory(4 * kShare);
    Window window = open(comm, memory);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        for (int round = 0; round < 20; ++round) {
          put(window, pattern(i, kShare), 1 - comm.rank(), static_cast<std::size_t>(i) * kShare);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int i = 0; i < 4 * 20; ++i) window.wait_signal(1 - comm.rank());
    for (int i = 0; i < 4; ++i) {
      const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * kShare);
      const auto expected = pattern(i, kShare);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), begin)) << i;
    }
    window.close();
  });
}

TEST_P(Windows, count_signals_by_sender) {
  expect_success(3, [](Communicator& comm) {
    Window window = comm.open_window(nullptr, 0);
    if (comm.rank() != 0) {
      for (int i = 0; i < comm.rank(); ++i) window.signal(0);
    } else {
      const Work second = window.wait_signal_async(2);
      window.wait_signal(1);
      second.wait();
      window.wait_signal(2);
      const ErrorInfo late = error_of([&] { window.wait_signal(1, Milliseconds(20)); });
      EXPECT_EQ(late.kind, ErrorKind::deadline_exceeded);
      EXPECT_NE(late.message.find("rank 1 has sent 1 signals so far"), std::string::npos) << late.message;
      EXPECT_EQ(late.peer, 1);
    }
    comm.barrier();
    if (comm.rank() == 1) window.signal(0);
    if (comm.rank() == 0) window.wait_signal(1);  // the call that was late has taken none
    window.close();
  });
}

TEST_P(Windows, learn_the_sizes_and_labels_of_all_ranks_and_refuse_what_does_not_fit) {
  expect_success(3, [](Communicator& comm) {
    std::vector<std::uint8_t> memory(static_cast<std::size_t>(10 * comm.rank()));
    Window window = open(comm, memory, static_cast<std::uint64_t>(100 + comm.rank()));
    EXPECT_EQ(window.bytes(2), 20u);
    EXPECT_EQ(window.label(1), 101u);
    const auto data = pattern(0, 5);
    for (const auto& [to, offset] :
         {std::pair(2, std::size_t{16}), {0, 0}, {1, 11}, {1, SIZE_MAX}, {1, SIZE_MAX - 2}}) {
      const ErrorInfo error = error_of([&, to = to, offset = offset] { put(window, data, to, offset); });
      EXPECT_EQ(error.kind, ErrorKind::invalid_argument) << error.message;
      const auto expected = "5 bytes from offset " + std::to_string(offset) + " on exceed the window of rank " +
                            std::to_string(to) + ", which has " + std::to_string(10 * to) + " bytes";
      EXPECT_NE(error.message.find(expected), std::string::npos) << error.message;
    }
    for (const int rank : {-1, 3}) {
      EXPECT_EQ(error_of([&] { put(window, data, rank, 0); }).kind, ErrorKind::invalid_argument);
      EXPECT_EQ(error_of([&] { window.signal(rank); }).kind, ErrorKind::invalid_argument);
      EXPECT_EQ(error_of([&] { window.wait_signal(rank); }).kind, ErrorKind::invalid_argument);
    }
    put(window, data, 2, 15);  // still usable
    if (comm.rank() == 2) {
      for (int from = 0; from < 3; ++from) window.wait_signal(from);
      EXPECT_EQ(memory[19], data[4]);
    }
    window.close();
  });
}

TEST_P(Windows, of_a_group_are_closed_in_any_order_by_their_last_handle) {
  expect_success(2, [](Communicator& comm) {
    std::vector<std::uint8_t> first(8), second(8);
    auto a = std::make_unique<Window>(open(comm, first));
    auto b = std::make_unique<Window>(open(comm, second));
    put(*b, pattern(7, 8), 1 - comm.rank(), 0);
    put(*a, pattern(6, 8), 1 - comm.rank(), 0);
    a->wait_signal(1 - comm.rank());
    b->wait_signal(1 - comm.rank());
    EXPECT_EQ(first, pattern(6, 8));
    EXPECT_EQ(second, pattern(7, 8));
    std::thread other([&] { (comm.rank() == 0 ? a : b).reset(); });
    (comm.rank() == 0 ? b : a).reset();
    other.join();
  });
}

TEST_P(Windows, that_are_closed_refuse_calls_and_keep_what_came_before) {
  expect_success(2, [](Communicator& comm) {
    std::vector<std::uint8_t> memory(100'000);
    Window window = open(comm, memory);
    const auto data = pattern(1, memory.size());
    if (comm.rank() == 0) {
      put(window, data, 1, 0);
      window.close();
      window.close();
      for (const auto& call :
           {std::function([&] { put(window, data, 1, 0); }), std::function([&] { window.signal(1); }),
            std::function([&] { window.wait_signal(1); })}) {
        EXPECT_EQ(error_of(call).kind, ErrorKind::misuse);
      }
      return;
    }
    window.wait_signal(0);
    const ErrorInfo ended = error_of([&] { window.wait_signal(0); });
    EXPECT_EQ(ended.kind, ErrorKind::peer_lost);
    EXPECT_NE(ended.message.find("rank 0 has closed the window"), std::string::npos) << ended.message;
    put(window, data, 0, 0);  // rank 0 waits for all ranks to close
    window.close();
    EXPECT_EQ(memory, data);
  });
}

TEST_P(Windows, that_a_rank_does_not_close_in_time_are_lost_on_all) {
  expect_success(2, [](Communicator& comm) {
    Communicator group = comm.dup();
    if (comm.rank() == 0) group.set_timeout(Milliseconds(50));
    Window window = group.open_window(nullptr, 0);
    if (comm.rank() == 0) {
      EXPECT_EQ(error_of([&] { window.close(); }).kind, ErrorKind::deadline_exceeded);
    } else {
      EXPECT_EQ(error_of([&] { window.wait_signal(0); }).kind, ErrorKind::peer_lost);
      EXPECT_EQ(error_of([&] { window.wait_signal(1); }).kind, ErrorKind::aborted);
      EXPECT_EQ(error_of([&] { window.signal(0); }).kind, ErrorKind::aborted);
      EXPECT_EQ(error_of([&] { window.close(); }).kind, ErrorKind::aborted);
    }
    group.barrier();  // the group itself is as it was
  });
}

TEST_P(Windows, are_no_part_of_a_recorded_group_of_calls) {
  expect_success(1, [](Communicator& comm) {
    std::vector<std::uint8_t> memory(1);
    Window window = open(comm, memory);
    comm.group_start();
    EXPECT_EQ(error_of([&] { put(window, {3}, 0, 0); }).kind, ErrorKind::misuse);
    EXPECT_EQ(error_of([&] { window.wait_signal(0); }).kind, ErrorKind::misuse);
    comm.group_end();
    put(window, {3}, 0, 0);
    EXPECT_EQ(memory[0], 3) << "a put to itself ends when it has arrived";
    window.close();
  });
}

}  // namespace
}  // namespace qccl::testing
