// Random programs over several groups and threads, posted in different orders on different ranks,
// over real shared memory and TCP: none hangs, and none gives a wrong or a differing result.
//
//   make soak      10,000 of them
//   RANDOM_PROGRAM_SEED=17 build/tests/qccl_test_threads --gtest_filter='RandomProgram.*'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "support/long_run.h"
#include "support/random_program.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

constexpr std::uint64_t kProgramsInAllTests = 2000;
constexpr std::uint64_t kProgramsAJob = 50;

// Collects the results of a job's ranks until all members of a step's group have added theirs.
class Results {
 public:
  // The call with the last member's result returns what is wrong with the step, or "".
  std::string add(std::uint64_t seed, const ProgramStep& step, const Communicator& group, const ByteVector& result) {
    std::vector<ByteVector> outputs;
    {
      const std::lock_guard lock(mutex_);
      Waiting& waiting = waiting_[{seed, step.id}];
      waiting.outputs.resize(static_cast<std::size_t>(group.size()));
      waiting.outputs[static_cast<std::size_t>(group.rank())] = result;
      if (++waiting.came < group.size()) return {};
      outputs = std::move(waiting.outputs);
      waiting_.erase({seed, step.id});
    }
    return check_results(step, outputs);
  }

 private:
  struct Waiting {
    std::vector<ByteVector> outputs;  // by member
    int came = 0;
  };
  std::mutex mutex_;
  std::map<std::pair<std::uint64_t, int>, Waiting> waiting_;
};

// One rank's run of a program.
class Run {
 public:
  Run(const Program& program, Communicator& comm, Results& results)
      : program_(program), comm_(comm), results_(results) {}

  void go() {
    open_groups();
    for (const ProgramStep& step : program_.steps) {
      if (!takes_part(step)) continue;
      Communicator& group = *groups_[static_cast<std::size_t>(step.group)];
      tasks_.push_back({step, StepBuffers(step, group.rank(), group.size())});
    }
    std::vector<std::string> failures(static_cast<std::size_t>(program_.lanes));
    std::vector<std::thread> lanes;
    for (int lane = 0; lane < program_.lanes; ++lane) {
      lanes.emplace_back([&, lane] {
        try {
          run_lane(lane);
        } catch (const std::exception& error) {
          failures[static_cast<std::size_t>(lane)] = error.what();
        }
      });
    }
    for (std::thread& lane : lanes) lane.join();
    for (const std::string& failure : failures) require(failure);
    for (const Task& task : tasks_) check(task);
  }

 private:
  struct Task {
    const ProgramStep& step;
    StepBuffers buffers;
    std::vector<Work> works{};
    int expected_source = -1;
  };

  void require(const std::string& failure) const {
    if (!failure.empty()) throw std::runtime_error(fmt::format("seed {}: {}", program_.seed, failure));
  }

  void open_groups() {
    for (std::size_t i = 0; i < program_.groups.size(); ++i) {
      const std::vector<int>& ranks = program_.groups[i].ranks;
      const bool member = std::find(ranks.begin(), ranks.end(), comm_.rank()) != ranks.end();
      groups_.emplace_back();
      if (member) groups_.back() = comm_.subgroup(ranks, "program");
    }
  }

  bool takes_part(const ProgramStep& step) const {
    const auto& group = groups_[static_cast<std::size_t>(step.group)];
    if (!group) return false;
    return step.kind != StepKind::message || group->rank() == step.options.root || group->rank() == step.to;
  }

  void run_lane(int lane) {
    std::map<int, std::deque<Task*>> by_group;
    for (Task& task : tasks_) {
      if (program_.groups[static_cast<std::size_t>(task.step.group)].lane == lane) {
        by_group[task.step.group].push_back(&task);
      }
    }
    if (program_.blocking[static_cast<std::size_t>(lane)]) {
      for (auto& [group, tasks] : by_group) {
        for (Task* task : tasks) call(*task);
      }
      return;
    }
    Random random(program_.seed * 1000 + static_cast<std::uint64_t>(comm_.rank() * 10 + lane));
    std::vector<Work> works = post_mixed(random, by_group);
    while (!works.empty()) {
      const auto at = static_cast<std::ptrdiff_t>(random.below(works.size()));
      works[static_cast<std::size_t>(at)].wait();
      works.erase(works.begin() + at);
    }
  }

  // Posts the next step of any group, sometimes several in a recorded group.
  std::vector<Work> post_mixed(Random& random, std::map<int, std::deque<Task*>>& by_group) {
    std::vector<Work> works;
    while (!by_group.empty()) {
      const bool recorded = random.below(4) == 0;
      if (recorded) comm_.group_start();
      for (std::uint64_t n = recorded ? random.below(5) : 1; n > 0 && !by_group.empty(); --n) {
        const auto next = std::next(by_group.begin(), static_cast<std::ptrdiff_t>(random.below(by_group.size())));
        Task& task = *next->second.front();
        next->second.pop_front();
        if (next->second.empty()) by_group.erase(next);
        post(task);
        works.insert(works.end(), task.works.begin(), task.works.end());
      }
      if (recorded) works.push_back(comm_.group_end());
    }
    return works;
  }

  static MessageOptions options_of(const ProgramStep& step) { return {.tag = step.tag}; }

  void post(Task& task) {
    const ProgramStep& step = task.step;
    Communicator& group = *groups_[static_cast<std::size_t>(step.group)];
    std::byte* input = task.buffers.input();
    std::byte* output = task.buffers.output();
    const auto add = [&](Work work) { task.works.push_back(std::move(work)); };
    switch (step.kind) {
      case StepKind::collective: return add(post_collective(group, step, task.buffers));
      case StepKind::list: return add(group.all_reduce_coalesced_async(list_of(task), step.type));
      case StepKind::shift:
        add(group.send_async(input, step.count, step.type, (group.rank() + 1) % group.size(), options_of(step)));
        return add(group.recv_async(output, step.count, step.type, previous_in(group), options_of(step)));
      case StepKind::message: break;
    }
    if (group.rank() == step.options.root) {
      add(group.send_async(input, step.count, step.type, step.to, options_of(step)));
    }
    if (group.rank() != step.to) return;
    task.expected_source = step.options.root;
    add(group.recv_async(output, step.count, step.type, source_of(step), options_of(step)));
  }

  // The same, blocking. A message from a rank to itself must not block.
  void call(Task& task) {
    const ProgramStep& step = task.step;
    Communicator& group = *groups_[static_cast<std::size_t>(step.group)];
    const bool sends = step.kind == StepKind::message && group.rank() == step.options.root;
    const bool receives = step.kind == StepKind::message && group.rank() == step.to;
    std::byte* input = task.buffers.input();
    std::byte* output = task.buffers.output();
    if (sends && !receives) return group.send(input, step.count, step.type, step.to, options_of(step));
    if (receives && !sends) {
      const int source = group.recv(output, step.count, step.type, source_of(step), options_of(step));
      return require(source == step.options.root ? "" : fmt::format("step {}: from {}", step.id, source));
    }
    if (step.kind == StepKind::collective) return call_collective(group, step, task.buffers);
    if (step.kind == StepKind::list) return group.all_reduce_coalesced(list_of(task), step.type);
    if (step.kind == StepKind::shift) {
      group.sendrecv({input, step.count, step.type, (group.rank() + 1) % group.size()},
                     {output, step.count, step.type, previous_in(group)}, options_of(step));
      return;
    }
    post(task);
    for (const Work& work : task.works) work.wait();
  }

  static int previous_in(const Communicator& group) { return (group.rank() + group.size() - 1) % group.size(); }
  static int source_of(const ProgramStep& step) { return step.any_source ? kAnySource : step.options.root; }

  // Two buffers: the first third and the rest.
  static std::vector<CallBuffers> list_of(Task& task) {
    const std::size_t first = task.step.count / 3;
    const std::size_t bytes = first * element_bytes(task.step.type);
    return {{task.buffers.input(), task.buffers.output(), first},
            {task.buffers.input() + bytes, task.buffers.output() + bytes, task.step.count - first}};
  }

  void check(const Task& task) {
    const ProgramStep& step = task.step;
    const Communicator& group = *groups_[static_cast<std::size_t>(step.group)];
    if (step.kind == StepKind::collective || step.kind == StepKind::list) {
      return require(results_.add(program_.seed, step, group, task.buffers.result()));
    }
    require(check_received(step, group.rank(), group.size(), task.buffers.result()));
    if (task.expected_source >= 0 && task.works.back().source() != task.expected_source) {
      require(fmt::format("step {}: a message from {}", step.id, task.works.back().source()));
    }
  }

  const Program& program_;
  Communicator& comm_;
  Results& results_;
  std::vector<std::optional<Communicator>> groups_;
  std::deque<Task> tasks_;
};

struct Seeds {
  std::uint64_t first;
  std::uint64_t count;
};

// The transport and world of each job depend only on the seed, so that any seed can be replayed alone.
constexpr TransportChoice transport_of(std::uint64_t seed) {
  return seed / kProgramsAJob % 2 == 0 ? TransportChoice::shm : TransportChoice::tcp;
}
constexpr int world_of(std::uint64_t seed) { return static_cast<int>(1 + seed / kProgramsAJob / 2 % 5); }

// One job that runs programs one after another; "" or what went wrong.
std::string run_programs(Seeds seeds) {
  Results results;
  ThreadJobOptions options;
  options.transport = transport_of(seeds.first);
  const int world = world_of(seeds.first);
  const auto failures = run_threads(world, options, [&](Communicator& comm) {
    for (std::uint64_t i = 0; i < seeds.count; ++i) {
      const Program program = draw_program(seeds.first + i, world);
      Run(program, comm, results).go();
    }
  });
  for (const std::string& failure : failures) {
    if (!failure.empty()) return failure;
  }
  return {};
}

class RandomPrograms : public ::testing::TestWithParam<TransportChoice> {};
INSTANTIATE_TEST_SUITE_P(All, RandomPrograms, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

constexpr const char* kReplay =
    "to replay: RANDOM_PROGRAM_SEED=... build/tests/qccl_test_threads --gtest_filter='RandomProgram.*'";

TEST_P(RandomPrograms, of_mixed_operations_end_right_whatever_the_order) {
  const std::uint64_t programs = environment_number("RANDOM_PROGRAMS", kProgramsInAllTests);
  for (std::uint64_t first = 0; first < programs; first += kProgramsAJob) {
    if (transport_of(first) != GetParam()) continue;
    const Seeds seeds{first, std::min(kProgramsAJob, programs - first)};
    ASSERT_EQ(run_programs(seeds), "") << kReplay;
    std::cout << fmt::format("seeds {} to {}, {} ranks\n", first, first + seeds.count - 1, world_of(first));
  }
}

TEST(RandomProgram, of_the_seed_in_the_environment_ends_right) {
  const std::uint64_t seed = environment_number("RANDOM_PROGRAM_SEED", 0);
  EXPECT_EQ(run_programs({seed, 1}), "") << kReplay;
}

}  // namespace
}  // namespace qccl::testing
