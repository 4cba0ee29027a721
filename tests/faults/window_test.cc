// Windows whose members die.
#include <vector>

#include "faults/job.h"
#include "qccl/window.h"

namespace qccl::testing {
namespace {

class WindowFaults : public Transports {};

TEST_P(WindowFaults, killed_member_ends_every_wait_and_put_within_a_second) {
  JobOptions options = job(3);
  options.faults = {{.rank = 2, .point = "open"}};
  expect_within_a_second([&] {
    const Report report = run_ranks(options, [&](Rank& rank) {
      Communicator comm = rank.init();
      std::vector<char> memory(4 << 20);
      Window window = comm.open_window(memory.data(), memory.size());
      const Work unsignalled = window.wait_signal_async(1 - rank.rank() % 2);
      meet(rank, 3);
      if (rank.rank() == 2) rank.point("open");
      const ErrorInfo failure = failure_of(rank, [&] { unsignalled.wait(); });
      EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.message;
      EXPECT_EQ(failure.peer, 2) << failure.message;
      EXPECT_TRUE(contains(failure.message, "rank 2")) << failure.message;
      for (const int to : {0, 1, 2}) {
        EXPECT_THROW(window.put({memory.data(), memory.size(), to, 0}), Error);
      }
      EXPECT_THROW(window.wait_signal(rank.rank()), Error);
      EXPECT_THROW(window.close(), Error);
    });
    return report.passed ? slowest_failure(report, {0, 1}, report.ranks[2].fault.value()) : 0;
  });
}

TEST_P(WindowFaults, member_killed_in_the_middle_of_its_puts_is_named) {
  JobOptions options = job(2);
  options.faults = {{.rank = 1, .point = "putting", .after = Milliseconds(50)}};
  run_ranks(options, [&](Rank& rank) {
    Communicator comm = rank.init();
    std::vector<char> memory(4 << 20);
    Window window = comm.open_window(memory.data(), memory.size());
    const ErrorInfo failure = failure_of(rank, [&] {
      for (int i = 0;; ++i) {
        if (rank.rank() == 1) window.put({memory.data(), memory.size(), 0, 0});
        if (rank.rank() == 0) window.wait_signal(1);
        if (i == 3) rank.point("putting");
      }
    });
    EXPECT_EQ(failure.kind, ErrorKind::peer_lost) << failure.message;
    EXPECT_EQ(failure.peer, 1) << failure.message;
  });
}

INSTANTIATE_TEST_SUITE_P(All, WindowFaults, both_transports(), transport_name);

}  // namespace
}  // namespace qccl::testing
