// Groups with another library inside their hosts (Communicator::use_inside()): their calls give what QCCL's own give.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "memory_inside.h"
#include "support/thread_job.h"

namespace qccl::testing {
namespace {

using Body = std::function<void(Communicator&)>;

void expect_success(int world, const Body& body, const ThreadJobOptions& options = {}) {
  for (const auto& failure : run_threads(world, options, body)) EXPECT_EQ(failure, "");
}

// Runs the body with a group of `ranks` of the world.
void expect_success(int world, const std::vector<int>& ranks, const Body& body) {
  expect_success(world, [&](Communicator& comm) {
    if (std::find(ranks.begin(), ranks.end(), comm.rank()) == ranks.end()) return;
    Communicator group = comm.subgroup(ranks, "some");
    body(group);
  });
}

// Whole numbers, whose sums are exact in any order.
template <class T>
std::vector<T> numbers(std::size_t count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(static_cast<int>(random() % 2001) - 1000);
  return values;
}

// Elements of a rank.
struct Buffers {
  std::size_t inputs;
  std::size_t outputs;
  bool in_place = false;
};

// Makes the call by both ways, whose outputs must be the same bits.
template <class T>
void expect_as_alone(Communicator& group, Communicator& alone, CollectiveCall call, const Buffers& buffers) {
  const auto [inputs, outputs, in_place] = buffers;
  std::vector<T> input = numbers<T>(std::max(inputs, in_place ? outputs : 0), 17 + group.rank());
  std::vector<T> same = input, output(outputs, T(-1)), expected(outputs, T(-2));
  if (call.collective == Collective::broadcast) output = expected = numbers<T>(outputs, 17 + group.rank());
  call.input = input.data();
  call.output = in_place ? input.data() : output.data();
  group.run(call);
  call.input = same.data();
  call.output = expected.data();
  alone.run(call);
  const std::vector<T>& got = in_place ? input : output;
  ASSERT_TRUE(std::equal(expected.begin(), expected.end(), got.begin()))
      << to_string(call.collective) << " of " << call.count << " in place " << in_place;
}

template <class T>
void compare_sums(Communicator& group, Communicator& alone, DataType type, ReduceOp op) {
  for (const std::size_t count : {16384UL, 16385UL, 50'021UL}) {
    for (const bool in_place : {false, true}) {
      const CollectiveCall call{Collective::all_reduce, nullptr, nullptr, count, type, {.op = op}};
      expect_as_alone<T>(group, alone, call, {count, count, in_place});
    }
    const CollectiveCall call{Collective::reduce_scatter, nullptr, nullptr, count, type, {.op = op}};
    expect_as_alone<T>(group, alone, call, {count * static_cast<std::size_t>(group.size()), count});
  }
}

void compare_copies(Communicator& group, Communicator& alone) {
  const auto size = static_cast<std::size_t>(group.size());
  for (const std::size_t count : {16384UL, 16387UL, 40'009UL}) {
    for (int root = 0; root < group.size(); ++root) {
      const CollectiveCall call{Collective::broadcast, nullptr, nullptr, count, DataType::float32, {.root = root}};
      expect_as_alone<float>(group, alone, call, {0, count});
    }
    const CollectiveCall gather{Collective::all_gather, nullptr, nullptr, count, DataType::float32, {}};
    expect_as_alone<float>(group, alone, gather, {count, count * size});
    const CollectiveCall exchange{Collective::all_to_all, nullptr, nullptr, count, DataType::float32, {}};
    expect_as_alone<float>(group, alone, exchange, {count * size, count * size});
  }
}

void compare_all(Communicator& group, const MemoryInside& inside) {
  Communicator alone = group.dup();
  group.use_inside(inside.factory());
  compare_sums<float>(group, alone, DataType::float32, ReduceOp::sum);
  compare_sums<float>(group, alone, DataType::float32, ReduceOp::avg);
  compare_sums<double>(group, alone, DataType::float64, ReduceOp::max);
  compare_sums<std::int64_t>(group, alone, DataType::int64, ReduceOp::sum);
  compare_sums<std::int32_t>(group, alone, DataType::int32, ReduceOp::min);
  compare_copies(group, alone);
}

TEST(Inside, calls_give_what_they_give_without) {
  for (const auto& [grid, world] : {std::pair("2x2", 4), std::pair("2x3", 6), std::pair("3x2", 6)}) {
    const Hosts hosts(grid);
    const MemoryInside inside;
    expect_success(world, [&](Communicator& comm) { compare_all(comm, inside); });
    EXPECT_GT(inside.calls(), 0) << grid;
  }
}

TEST(Inside, one_host_needs_nothing_between) {
  const MemoryInside inside;
  expect_success(3, [&](Communicator& comm) { compare_all(comm, inside); });
  EXPECT_GT(inside.calls(), 0);
}

// Ranks of hosts with 4 and 2, 4 and 1, 3 and 2; and ranks that do not follow each other.
TEST(Inside, hosts_may_be_uneven) {
  const Hosts hosts("2x4");
  const std::vector<std::vector<int>> groups = {
      {0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 7}, {4, 0, 1, 5, 2}, {0, 4, 1, 5}, {1, 2, 5, 6}};
  for (const std::vector<int>& ranks : groups) {
    const MemoryInside inside;
    expect_success(8, ranks, [&](Communicator& comm) { compare_all(comm, inside); });
    EXPECT_GT(inside.calls(), 0);
  }
}

TEST(Inside, hosts_of_one_rank_go_on_as_without) {
  const Hosts hosts("3x1");
  const MemoryInside inside;
  expect_success(3, [&](Communicator& comm) { compare_all(comm, inside); });
  EXPECT_EQ(inside.calls(), 0);
}

TEST(Inside, calls_that_do_not_suit_go_on_as_without) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  expect_success(4, [&](Communicator& comm) {
    Communicator alone = comm.dup();
    comm.use_inside(inside.factory());
    const auto compare = [&](std::size_t count, const CallOptions& options) {
      const CollectiveCall call{Collective::all_reduce, nullptr, nullptr, count, DataType::float32, options};
      expect_as_alone<float>(comm, alone, call, {count, count});
    };
    compare(16383, {});
    compare(20000, {.algorithm = Algorithm::ring});
    compare(20000, {.keep_input = true});
    compare(20000, {.op = ReduceOp::premul_sum, .premul_factor = 0.5});
    std::vector<float> grouped(20000, 1.0F);
    comm.group_start();
    comm.all_reduce(grouped);
    comm.group_end().wait();
    EXPECT_EQ(grouped.front(), 4.0F);
  });
  EXPECT_EQ(inside.calls(), 0);
}

// A sum of 4 codes has the same bits on all ranks, and only hosts' sums are encoded.
TEST(Inside, what_goes_between_hosts_is_compressed) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  constexpr std::size_t kCount = 100'003;
  expect_success(4, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> sum(kCount);
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    for (float& value : sum) value = std::normal_distribution<float>()(random);
    std::vector<float> exact = sum;
    const std::uint64_t before = comm.traffic().payload_bytes_sent;
    comm.all_reduce(sum, {.op = ReduceOp::avg, .compression = Compression::parse("int:bits=8")});
    const std::uint64_t sent = comm.traffic().payload_bytes_sent - before;
    EXPECT_LT(sent, kCount * 3 / 4) << "half of the tensor, 8 bits and scales, sent once and as a sum";
    EXPECT_GT(sent, kCount / 2);
    comm.all_reduce(exact, {.op = ReduceOp::avg, .compression = none()});
    double error = 0, square = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      error += (sum[i] - exact[i]) * (sum[i] - exact[i]);
      square += exact[i] * exact[i];
    }
    EXPECT_LT(error / square, 1e-3);
    std::vector<float> all(4 * kCount);
    comm.all_gather(sum, all, {.compression = none()});
    for (std::size_t rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(std::memcmp(&all[rank * kCount], sum.data(), kCount * sizeof(float)), 0) << rank;
    }
  });
}

// The sum of many outputs and the residuals is the sum of the inputs.
TEST(Inside, error_feedback_loses_nothing) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  constexpr std::size_t kCount = 20'000;
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
    expect_success(4, [&](Communicator& comm) {
      comm.use_inside(inside.factory());
      const bool scatters = collective == Collective::reduce_scatter;
      const std::size_t outputs = scatters ? kCount / 4 : kCount;
      const std::vector<float> input = numbers<float>(kCount, comm.rank());
      std::vector<float> output(outputs), total(outputs);
      const ErrorFeedback feedback(kCount);
      for (int round = 0; round < 20; ++round) {
        comm.run({collective,
                  input.data(),
                  output.data(),
                  outputs,
                  DataType::float32,
                  {.compression = Compression::parse("int:bits=2"), .error_feedback = feedback}});
        for (std::size_t i = 0; i < outputs; ++i) total[i] += output[i];
      }
      EXPECT_EQ(feedback.counter(), 20u);
      std::vector<float> exact(outputs);
      comm.run({collective, input.data(), exact.data(), outputs, DataType::float32, {.compression = none()}});
      double error = 0, square = 0;
      for (std::size_t i = 0; i < outputs; ++i) {
        error += std::pow(total[i] / 20 - exact[i], 2);
        square += std::pow(exact[i], 2);
      }
      EXPECT_LT(error / square, 0.01) << "without feedback 0.1";
    });
  }
}

// Calls inside, calls without and messages, all in flight together.
TEST(Inside, many_calls_are_in_flight_beside_others) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  expect_success(4, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<std::vector<float>> buffers;
    std::vector<Work> works;
    for (int round = 0; round < 60; ++round) {
      const std::size_t count = round % 3 == 0 ? 100 : 16'384 + static_cast<std::size_t>(round);
      buffers.emplace_back(count, static_cast<float>(round));
    }
    for (std::vector<float>& buffer : buffers) works.push_back(comm.all_reduce_async(buffer));
    for (const Work& work : works) work.wait();
    for (std::size_t round = 0; round < buffers.size(); ++round) {
      const float expected = 4 * static_cast<float>(round);
      EXPECT_TRUE(std::ranges::all_of(buffers[round], [&](float value) { return value == expected; })) << round;
    }
  });
}

// Owners of a cell choose one algorithm, whatever the sizes of their hosts.
TEST(Inside, calls_that_are_made_together_work_on_uneven_hosts) {
  const Hosts hosts("2x4");
  const MemoryInside inside;
  expect_success(8, {0, 1, 2, 3, 4, 5}, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    for (std::size_t together = 1 << 14; together <= 1 << 26; together *= 2) {
      std::vector<float> values(40'000, 1.0F);
      comm.all_reduce(values, {.together = together});
      EXPECT_EQ(values.back(), 6.0F);
    }
  });
}

TEST(Inside, an_error_feedback_is_the_calls_until_it_has_ended) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  expect_success(4, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> values(20'000, 1.0F), others(20'000, 1.0F);
    const ErrorFeedback feedback(20'000);
    const CallOptions options{.compression = Compression::parse("int:bits=4"), .error_feedback = feedback};
    if (comm.rank() != 0) {
      comm.barrier();
      comm.all_reduce(values, options);
      return;
    }
    const Work work = comm.all_reduce_async(values, options);
    EXPECT_THROW(feedback.counter(), Error);
    EXPECT_THROW(comm.all_reduce_async(others, options), Error);
    comm.barrier();
    work.wait();
    EXPECT_EQ(feedback.counter(), 1u);
  });
}

// The residual of a reduce_scatter is that of the elements that this rank sends to the ranks of its place.
TEST(Inside, residuals_lie_where_their_elements_do) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  expect_success(4, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    constexpr std::size_t kPart = 8192;
    std::vector<float> input(4 * kPart), output(kPart);
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    for (float& value : input) value = std::normal_distribution<float>()(random);
    const ErrorFeedback feedback(input.size());
    comm.run({Collective::reduce_scatter,
              input.data(),
              output.data(),
              kPart,
              DataType::float32,
              {.compression = Compression::parse("int:bits=4"), .error_feedback = feedback}});
    for (std::size_t part = 0; part < 4; ++part) {
      const auto residual = feedback.residual().subspan(part * kPart, kPart);
      const bool has_some = std::ranges::any_of(residual, [](float value) { return value != 0; });
      const auto rank = static_cast<std::size_t>(comm.rank());
      EXPECT_EQ(has_some, part % 2 == rank % 2 && part / 2 != rank / 2) << part << ": owners do not encode";
    }
  });
}

// ---- failures

// Waits for what another thread does, at most so long.
void wait_until(const std::function<bool()>& holds, std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  while (!holds() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

// A MemoryInside group that calls functions of the test's first.
struct Hooks {
  std::function<void()> reduce_scatter{};
  std::function<void()> all_gather{};
  std::function<void()> abort{};
};

class HookedGroup final : public InsideGroup {
 public:
  HookedGroup(std::unique_ptr<InsideGroup> own, Hooks hooks) : own_(std::move(own)), hooks_(std::move(hooks)) {}
  void reduce_scatter(const InsideCall& call) override {
    if (hooks_.reduce_scatter) hooks_.reduce_scatter();
    own_->reduce_scatter(call);
  }
  void all_gather(const InsideCall& call) override {
    if (hooks_.all_gather) hooks_.all_gather();
    own_->all_gather(call);
  }
  void broadcast(const InsideCall& call) override { own_->broadcast(call); }
  void all_to_all(const InsideCall& call) override { own_->all_to_all(call); }
  void abort() noexcept override {
    if (hooks_.abort) hooks_.abort();
    own_->abort();
  }

 private:
  const std::unique_ptr<InsideGroup> own_;
  const Hooks hooks_;
};

InsideFactory hooked(const MemoryInside& inside, const Hooks& hooks) {
  return
      [inside, hooks](const InsideHost& host) { return std::make_unique<HookedGroup>(inside.factory()(host), hooks); };
}

TEST(Inside, close_waits_for_a_call_of_another_thread) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  expect_success(4, [&](Communicator& comm) {
    std::thread closer;
    std::atomic<bool> is_closed{false};
    const auto close = [&] {
      closer = std::thread([&] {
        comm.close();
        is_closed = true;
      });
      wait_until([&] { return is_closed.load(); }, std::chrono::milliseconds(200));
      EXPECT_FALSE(is_closed);
    };
    comm.use_inside(hooked(inside, comm.rank() == 0 ? Hooks{.reduce_scatter = close} : Hooks{}));
    std::vector<float> values(20'000, 1.0F);
    comm.all_reduce(values);
    if (closer.joinable()) closer.join();
    EXPECT_EQ(values.back(), 4.0F);
  });
}

TEST(Inside, abort_returns_once_the_memory_is_the_callers) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  run_threads(4, {}, [&](Communicator& comm) {
    // abort() may look at these after this rank has gone.
    const auto is_inside = std::make_shared<std::atomic<bool>>(false);
    const auto has_returned = std::make_shared<std::atomic<bool>>(false);
    const Hooks hooks{
        .reduce_scatter = [=] { *is_inside = true; },
        .abort = [=] { wait_until([&] { return has_returned->load(); }, std::chrono::milliseconds(200)); }};
    comm.use_inside(comm.rank() == 0 ? hooked(inside, hooks) : inside.factory());
    std::vector<float> values(20'000, 1.0F);
    const Work work = comm.all_reduce_async(values);
    if (comm.rank() == 0) {
      wait_until([&] { return is_inside->load(); }, std::chrono::seconds(20));
      comm.abort("enough");
      EXPECT_TRUE(work.done());
      *has_returned = true;
    }
    work.wait();
  });
}

TEST(Inside, calls_that_differ_only_in_the_rest_fail_everywhere) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  const auto failures = run_threads(4, {}, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> values(comm.rank() < 2 ? 30'000 : 30'001, 1.0F), next(40'001, 100.0F);
    const Work first = comm.all_reduce_async(values), second = comm.all_reduce_async(next);
    wait_until([&] { return first.done() && second.done(); }, std::chrono::seconds(60));
    first.wait();
    second.wait();
  });
  for (const std::string& failure : failures) EXPECT_NE(failure, "");
}

// The call between the hosts ends well, and then the other library fails.
TEST(Inside, a_failed_call_leaves_the_error_feedback_as_it_was) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  run_threads(4, {}, [&](Communicator& comm) {
    comm.use_inside(hooked(inside, {.all_gather = [] { throw std::runtime_error("broken"); }}));
    const std::vector<float> input = numbers<float>(20'000, comm.rank());
    std::vector<float> output(input.size());
    const ErrorFeedback feedback(input.size());
    const CallOptions options{.compression = Compression::parse("int:bits=2"), .error_feedback = feedback};
    const CollectiveCall call{Collective::all_reduce, input.data(),      output.data(),
                              input.size(),           DataType::float32, options};
    EXPECT_THROW(comm.run(call), Error);
    EXPECT_EQ(feedback.counter(), 0u);
    EXPECT_TRUE(std::ranges::all_of(feedback.residual(), [](float value) { return value == 0; }));
  });
}

TEST(Inside, a_forked_child_closes_its_copy) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  expect_success(4, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    comm.barrier();
    if (comm.rank() == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        comm.close();
        ::_exit(7);
      }
      int status = 0;
      EXPECT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
    }
    comm.barrier();
  });
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Inside, calls_that_differ_in_a_host_name_both) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  const auto failures = run_threads(4, {}, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> values(comm.rank() == 3 ? 20'000 : 30'000);
    comm.all_reduce(values);
  });
  for (const std::string& failure : failures) {
    EXPECT_TRUE(has(failure, "different calls")) << failure;
    EXPECT_TRUE(has(failure, "20000") && has(failure, "30000")) << failure;
  }
}

TEST(Inside, calls_that_differ_between_hosts_fail_everywhere) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  const auto failures = run_threads(4, {}, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> values(comm.rank() >= 2 ? 20'000 : 30'000);
    comm.all_reduce(values);
  });
  for (const std::string& failure : failures) EXPECT_NE(failure, "");
}

TEST(Inside, a_failure_of_the_other_library_fails_all_ranks) {
  const Hosts hosts("2x2");
  MemoryInside inside;
  inside.break_from(3);
  const auto failures = run_threads(4, {}, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> values(20'000, 1.0F);
    for (int round = 0; round < 10; ++round) comm.all_reduce(values);
  });
  for (const std::string& failure : failures) {
    EXPECT_TRUE(has(failure, "broken")) << failure;
    EXPECT_TRUE(has(failure, "in host ") && has(failure, "(ranks ")) << failure;
  }
  EXPECT_EQ(inside.aborts(), 8);
}

TEST(Inside, a_rank_that_is_lost_ends_the_calls_of_all) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  const auto failures = run_threads(4, {}, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> values(20'000, 1.0F);
    comm.all_reduce(values);
    if (comm.rank() == 3) throw std::runtime_error("leaves");
    comm.all_reduce(values);
  });
  EXPECT_EQ(failures[3], "leaves");
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(has(failures[rank], "rank 3")) << failures[rank];
}

TEST(Inside, a_call_that_others_do_not_make_ends_at_its_deadline) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  std::atomic<int> ended = 0;
  const auto failures = run_threads(4, {}, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> values(20'000, 1.0F);
    if (comm.rank() == 1) {
      const Work failed = comm.when_failed();
      while (!failed.done()) std::this_thread::yield();
      ++ended;
      return;
    }
    comm.all_reduce(values, {.timeout = Milliseconds(300)});
  });
  EXPECT_EQ(ended, 1);
  for (const std::size_t rank : {0, 2, 3}) {
    EXPECT_TRUE(has(failures[rank], "deadline") && has(failures[rank], "waiting for rank 1")) << failures[rank];
  }
}

TEST(Inside, abort_ends_calls_under_way) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  const auto failures = run_threads(4, {}, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> values(20'000, 1.0F);
    if (comm.rank() == 0) return comm.abort("enough");
    comm.all_reduce(values);
  });
  for (const std::size_t rank : {1, 2, 3}) EXPECT_TRUE(has(failures[rank], "enough")) << failures[rank];
}

TEST(Inside, wrong_calls_are_refused_before_anything_is_sent) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  expect_success(4, [&](Communicator& comm) {
    comm.use_inside(inside.factory());
    std::vector<float> values(20'000, 1.0F);
    CollectiveCall call{Collective::all_reduce, nullptr, values.data(), 20'000, DataType::float32, {}};
    EXPECT_THROW(comm.run(call), Error);
    call.input = values.data();
    call.options.error_feedback = ErrorFeedback(7);
    EXPECT_THROW(comm.run(call), Error);
    EXPECT_THROW(comm.use_inside(inside.factory()), Error);
    comm.all_reduce(values);
    EXPECT_EQ(values.back(), 4.0F);
  });
}

TEST(Inside, a_factory_that_fails_on_one_rank_fails_the_group) {
  const Hosts hosts("2x2");
  const MemoryInside inside;
  const auto failures = run_threads(4, {}, [&](Communicator& comm) {
    const InsideFactory fails = [](const InsideHost&) -> std::unique_ptr<InsideGroup> {
      throw std::runtime_error("no library");
    };
    comm.use_inside(comm.rank() == 2 ? fails : inside.factory());
    comm.barrier();
  });
  for (const std::string& failure : failures) EXPECT_TRUE(has(failure, "no library")) << failure;
}

}  // namespace
}  // namespace qccl::testing
