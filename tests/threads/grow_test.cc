// Communicator::grow(): newcomers wait at the doors of members, and are taken in when the members call it.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "bootstrap/door/door.h"
#include "bootstrap/mesh/full_mesh.h"
#include "bootstrap/protocol/formats.h"
#include "bootstrap/protocol/key_space.h"
#include "bootstrap/store/tcp_store.h"
#include "os/net/socket.h"
#include "support/error_of.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

using namespace std::chrono_literals;

constexpr const char* kKey = "0123456789abcdef0123456789abcdef";

std::uint64_t sum_of(Communicator& comm, std::uint64_t own) {
  std::vector<std::uint64_t> values{own};
  comm.all_reduce(values);
  return values[0];
}

struct OpenJob {
  std::string name = "growing";
  std::string key{};
  TransportChoice transport = TransportChoice::automatic;
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();

  InitOptions options() const {
    InitOptions init;
    init.transport = transport;
    init.job = name;
    init.key = key;
    init.timeout = 60s;
    init.init_timeout = 60s;
    init.open = true;
    return init;
  }
  InitOptions member(int rank, int world) const {
    InitOptions init = options();
    init.rank = rank;
    init.world = world;
    init.store = store;
    init.compression = minmax({.bits = 8});
    return init;
  }
  InitOptions newcomer(const std::string& doors) const {
    InitOptions init = options();
    init.join = doors;
    return init;
  }
};

// Runs members as threads, and returns what each threw.
std::vector<std::string> run_members(const OpenJob& job, int world, const std::function<void(Communicator&)>& body) {
  std::vector<std::future<std::string>> members;
  for (int rank = 0; rank < world; ++rank) {
    members.push_back(std::async(std::launch::async, [&, rank]() -> std::string {
      try {
        Communicator comm = qccl::init(job.member(rank, world));
        body(comm);
        return "";
      } catch (const std::exception& error) {
        return error.what();
      }
    }));
  }
  std::vector<std::string> failures;
  for (auto& each : members) failures.push_back(each.get());
  return failures;
}

// The doors of all members, on every one of them.
std::vector<std::string> doors_of(Communicator& comm) {
  constexpr std::size_t kBytes = 256;
  std::string own = comm.door();
  own.resize(kBytes);
  std::string all(kBytes * static_cast<std::size_t>(comm.size()), '\0');
  comm.all_gather(own.data(), all.data(), kBytes, DataType::uint8);
  std::vector<std::string> doors;
  for (std::size_t begin = 0; begin < all.size(); begin += kBytes) doors.emplace_back(&all[begin]);
  return doors;
}

class Grow : public Transports {
 protected:
  OpenJob open_job() const {
    OpenJob job;
    job.transport = GetParam();
    return job;
  }
  static void expect_success(const std::vector<std::string>& failures) {
    for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  }
};

TEST_P(Grow, newcomers_get_the_ranks_after_the_members_and_the_groups_settings) {
  const OpenJob job = open_job();
  expect_success(run_members(job, 2, [&](Communicator& comm) {
    comm.set_compression(minmax({.bits = 5}));
    comm.set_timeout(50s);
    std::vector<std::future<int>> newcomers;
    for (const std::string& door : doors_of(comm)) {  // one newcomer at each
      if (comm.rank() != 0) break;
      newcomers.push_back(std::async(std::launch::async, [&job, door] {
        Communicator grown = qccl::init(job.newcomer(door));
        EXPECT_EQ(grown.size(), 4);
        EXPECT_EQ(grown.compression(), minmax({.bits = 5}));
        EXPECT_EQ(grown.timeout(), 50s);
        EXPECT_NE(grown.door(), "");
        EXPECT_EQ(sum_of(grown, 1U << grown.rank()), 15U);
        return grown.rank();
      }));
    }
    Communicator grown = comm.grow({.at_least = 2});
    EXPECT_EQ(grown.rank(), comm.rank());
    EXPECT_EQ(grown.size(), 4);
    EXPECT_EQ(grown.compression(), minmax({.bits = 5}));
    EXPECT_EQ(grown.door(), comm.door());
    EXPECT_EQ(sum_of(grown, 1U << grown.rank()), 15U);
    EXPECT_EQ(sum_of(comm, 1), 2U) << "the old group goes on";
    std::vector<int> ranks;
    for (auto& each : newcomers) ranks.push_back(each.get());
    if (comm.rank() == 0) {
      EXPECT_EQ(ranks, (std::vector<int>{2, 3}));
    }
  }));
}

TEST_P(Grow, those_who_find_no_room_wait_for_the_next_time_at_the_same_door) {
  const OpenJob job = open_job();
  expect_success(run_members(job, 1, [&](Communicator& comm) {
    std::vector<std::future<int>> newcomers;
    for (int i = 0; i < 3; ++i) {
      newcomers.push_back(std::async(std::launch::async, [&] {
        Communicator grown = qccl::init(job.newcomer(comm.door()));
        const int rank = grown.rank();
        while (grown.size() < 4) grown = grown.grow({.at_least = 1, .at_most = 1});
        EXPECT_EQ(grown.rank(), rank);
        EXPECT_EQ(sum_of(grown, 1), 4U);
        return rank;
      }));
    }
    Communicator grown = comm;
    for (int size = 2; size <= 4; ++size) {
      grown = grown.grow({.at_least = 1, .at_most = 1});
      EXPECT_EQ(grown.size(), size);
    }
    EXPECT_EQ(sum_of(grown, 1), 4U);
    std::vector<int> ranks;
    for (auto& each : newcomers) ranks.push_back(each.get());
    std::ranges::sort(ranks);
    EXPECT_EQ(ranks, (std::vector<int>{1, 2, 3}));
  }));
}

TEST_P(Grow, without_newcomers_the_group_stays_as_it_is) {
  const OpenJob job = open_job();
  expect_success(run_members(job, 2, [&](Communicator& comm) {
    EXPECT_EQ(comm.grow().size(), 2);
    EXPECT_EQ(error_of([&] { comm.grow({.at_least = 1, .timeout = 200ms}); }).kind, ErrorKind::deadline_exceeded);
    EXPECT_EQ(sum_of(comm, 1), 2U);
  }));
}

// A process that takes a ticket and answers so many calls, but never meets anybody.
class Impostor {
 public:
  Impostor(const OpenJob& job, const std::string& door, std::int64_t tickets = 1)
      : listener_(bootstrap::listen_for_mesh({.launch = {}, .transport = job.transport}, clock_).take_or_throw()),
        store_({.host = door.substr(0, door.find(':')),
                .port = static_cast<std::uint16_t>(std::stoi(door.substr(door.find(':') + 1))),
                .deadline = clock_.now() + 60s,
                .clock = &clock_}),
        keys_(store_, bootstrap::door_name(job.name), 0, clock_),
        ticket_(keys_.add("tickets", tickets).take_or_throw()) {}

  // Returns the seat.
  std::string answer() {
    const std::string turn = std::to_string(ticket_) + "/1/";
    keys_.get(turn + "call", clock_.now() + 60s).take_or_throw();
    const bootstrap::Record own{.process = "nobody", .card = bootstrap::encode_card(listener_.card)};
    keys_.set(turn + "here", bootstrap::encode_record(own)).take_or_throw();
    return keys_.get(turn + "seat", clock_.now() + 60s).take_or_throw().value_or("none");
  }

 private:
  SteadyClock clock_;
  const bootstrap::MeshListener listener_;
  bootstrap::TcpStore store_;
  bootstrap::KeySpace keys_;
  std::int64_t ticket_;
};

TEST_P(Grow, a_newcomer_that_does_not_answer_is_left_out_and_waited_for_once) {
  const OpenJob job = open_job();
  expect_success(run_members(job, 2, [&](Communicator& comm) {
    std::optional<Impostor> silent;
    if (comm.rank() == 1) silent.emplace(job, comm.door());
    comm.barrier();
    EXPECT_EQ(comm.grow({.patience = 50ms}).size(), 2);
    const SteadyClock clock;
    const TimePoint begin = clock.now();
    EXPECT_EQ(comm.grow({.patience = 30s}).size(), 2);
    EXPECT_LT(clock.now() - begin, 20s);
  }));
}

// More than may wait at one door, and one that asks for more than fit in memory.
TEST_P(Grow, a_crowd_that_takes_tickets_and_is_silent_does_not_keep_newcomers_out) {
  const OpenJob job = open_job();
  expect_success(run_members(job, 2, [&](Communicator& comm) {
    std::vector<std::unique_ptr<Impostor>> crowd;
    std::future<int> newcomer;
    if (comm.rank() == 0) {
      EXPECT_NE(error_of([&] { Impostor(job, comm.door(), 1'000'000'000); }).message, "");
      for (int i = 0; i < 400; ++i) crowd.push_back(std::make_unique<Impostor>(job, comm.door()));
      newcomer = std::async(std::launch::async, [&] { return qccl::init(job.newcomer(comm.door())).rank(); });
    }
    comm.barrier();
    const SteadyClock clock;
    const TimePoint begin = clock.now();
    EXPECT_EQ(comm.grow({.at_least = 1, .patience = 100ms}).size(), 3);
    EXPECT_LT(clock.now() - begin, 20s);
    if (newcomer.valid()) {
      EXPECT_EQ(newcomer.get(), 2);
    }
  }));
}

TEST_P(Grow, a_newcomer_that_keeps_still_with_its_seat_does_not_keep_others_out) {
  const OpenJob job = open_job();
  expect_success(run_members(job, 2, [&](Communicator& comm) {
    std::future<std::string> impostor;
    std::future<int> newcomer;
    if (comm.rank() == 0) {
      auto waiting = std::make_shared<Impostor>(job, comm.door());
      impostor = std::async(std::launch::async, [waiting] { return waiting->answer(); });
      newcomer = std::async(std::launch::async, [&] {
        Communicator grown = qccl::init(job.newcomer(comm.door()));
        EXPECT_EQ(sum_of(grown, 1), 3U);
        return grown.rank();
      });
    }
    Communicator grown = comm.grow({.at_least = 1, .patience = 100ms, .timeout = 4s});
    EXPECT_EQ(sum_of(grown, 1), 3U);
    if (comm.rank() == 0) {
      EXPECT_EQ(newcomer.get(), 2);
      EXPECT_NE(impostor.get(), "none");
    }
  }));
}

TEST_P(Grow, a_newcomer_that_ends_with_its_seat_ends_the_meeting) {
  const OpenJob job = open_job();
  expect_success(run_members(job, 2, [&](Communicator& comm) {
    std::future<std::string> impostor;
    if (comm.rank() == 1) {
      impostor = std::async(std::launch::async, [&] { return Impostor(job, comm.door()).answer(); });
    }
    // A meeting lasts up to a minute.
    const SteadyClock clock;
    const TimePoint begin = clock.now();
    std::vector<std::uint8_t> has_met{0};
    while (has_met[0] == 0) {
      EXPECT_EQ(comm.grow({.timeout = 1h}).size(), 2);
      const bool is_over = impostor.valid() && impostor.wait_for(0s) == std::future_status::ready;
      has_met = {static_cast<std::uint8_t>(is_over ? 1 : 0)};
      comm.all_reduce(has_met, {.op = ReduceOp::max});
    }
    if (impostor.valid()) {
      EXPECT_NE(impostor.get(), "none");
    }
    EXPECT_LT(clock.now() - begin, 40s);
  }));
}

TEST_P(Grow, with_a_key_only_processes_that_have_it_come_in) {
  OpenJob job = open_job();
  job.key = kKey;
  expect_success(run_members(job, 2, [&](Communicator& comm) {
    std::future<int> newcomer;
    if (comm.rank() == 0) {
      OpenJob other = job;
      other.key = "another key of thirty-two bytes!";
      EXPECT_EQ(error_of([&] { qccl::init(other.newcomer(comm.door())); }).kind, ErrorKind::invalid_argument);
      other.key = "";
      EXPECT_EQ(error_of([&] { qccl::init(other.newcomer(comm.door())); }).kind, ErrorKind::invalid_argument);
      newcomer = std::async(std::launch::async, [&] { return qccl::init(job.newcomer(comm.door())).rank(); });
    }
    Communicator grown = comm.grow({.at_least = 1});
    EXPECT_EQ(grown.size(), 3);
    if (comm.rank() == 0) {
      EXPECT_EQ(newcomer.get(), 2);
    }
  }));
}

TEST_P(Grow, newcomers_find_members_in_the_programs_store_and_are_found_there_themselves) {
  OpenJob job = open_job();
  job.key = kKey;
  InitOptions init = job.newcomer("store");
  init.store = job.store;
  std::promise<void> is_in;
  auto first = std::async(std::launch::async, [&] {  // perhaps it looks before the member begins
    Communicator grown = qccl::init(init);
    is_in.set_value();
    grown.barrier();
    error_of([&] {  // until the member has left
      while (true) sum_of(grown, 1);
    });
    Communicator rest = grown.shrink();
    EXPECT_EQ(rest.size(), 1);
    Communicator again = rest.grow({.at_least = 1});
    return sum_of(again, 1);
  });
  auto second = std::async(std::launch::async, [&] {
    is_in.get_future().wait();
    Communicator grown = qccl::init(init);
    return sum_of(grown, 1);
  });
  expect_success(run_members(job, 1, [&](Communicator& comm) {
    Communicator grown = comm.grow({.at_least = 1, .at_most = 1});
    grown.barrier();
  }));
  EXPECT_EQ(first.get(), 2U);
  EXPECT_EQ(second.get(), 2U);
}

// The store in which ranks met by address and port.
TEST_P(Grow, the_store_that_rank_0_serves_stays_for_newcomers) {
  OpenJob job = open_job();
  const os::Fd held = os::reserve_tcp_port().take_or_throw();
  const auto at_store = [&](InitOptions init) {
    init.store.reset();
    init.master_address = "127.0.0.1";
    init.master_port = os::local_port(held).take_or_throw();
    return init;
  };
  for (const char* key : {"", kKey}) {
    job.key = key;
    auto newcomer = std::async(std::launch::async, [&] {
      Communicator grown = qccl::init(at_store(job.newcomer("store")));
      return sum_of(grown, 1);
    });
    std::vector<std::future<std::uint64_t>> members;
    for (int rank = 0; rank < 2; ++rank) {
      members.push_back(std::async(std::launch::async, [&, rank] {
        Communicator grown = qccl::init(at_store(job.member(rank, 2))).grow({.at_least = 1});
        return sum_of(grown, 1);
      }));
    }
    for (auto& each : members) EXPECT_EQ(each.get(), 3U);
    EXPECT_EQ(newcomer.get(), 3U);
  }
}

TEST_P(Grow, wrong_calls_and_options_are_refused_by_name) {
  OpenJob job = open_job();
  expect_success(run_members(job, 2, [&](Communicator& comm) {
    EXPECT_EQ(error_of([&] { comm.grow({.at_least = 2, .at_most = 1}); }).kind, ErrorKind::invalid_argument);
    EXPECT_EQ(error_of([&] { comm.grow({.at_least = 1023}); }).kind, ErrorKind::invalid_argument);
    EXPECT_EQ(error_of([&] { comm.grow({.timeout = 0ms}); }).kind, ErrorKind::invalid_argument);
    EXPECT_EQ(error_of([&] { comm.grow({.patience = -1ms}); }).kind, ErrorKind::invalid_argument);
    EXPECT_EQ(comm.grow().size(), 2);
    InitOptions with_rank = job.newcomer(comm.door());
    with_rank.rank = 1;
    EXPECT_EQ(error_of([&] { qccl::init(with_rank); }).kind, ErrorKind::invalid_argument);
  }));
  InitOptions without_store = job.newcomer("store");
  const ErrorInfo refused = error_of([&] { qccl::init(without_store); });
  EXPECT_EQ(refused.kind, ErrorKind::invalid_argument);
  EXPECT_NE(refused.message.find("MASTER_ADDR"), std::string::npos) << refused.message;
  InitOptions with_store = job.newcomer("127.0.0.1:1");
  with_store.store = job.store;
  EXPECT_EQ(error_of([&] { qccl::init(with_store); }).kind, ErrorKind::invalid_argument);
  for (const char* text : {"10.0.0.1", "10.0.0.1:", ":40000", "10.0.0.1:0", "10.0.0.1:40000,"}) {
    const ErrorInfo unread = error_of([&] { qccl::init(job.newcomer(text)); });
    EXPECT_EQ(unread.kind, ErrorKind::invalid_argument) << text;
    EXPECT_NE(unread.message.find("InitOptions::join"), std::string::npos) << unread.message;
  }
}

TEST_P(Grow, who_is_not_taken_in_is_told_why) {
  const OpenJob job = open_job();
  expect_success(run_members(job, 1, [&](Communicator& comm) {
    InitOptions init = job.newcomer("127.0.0.1:1," + comm.door());
    init.init_timeout = 300ms;
    const ErrorInfo failed = error_of([&] { qccl::init(init); });
    EXPECT_EQ(failed.kind, ErrorKind::deadline_exceeded);
    EXPECT_NE(failed.message.find("127.0.0.1:1: "), std::string::npos) << failed.message;
    EXPECT_NE(failed.message.find("did not call grow()"), std::string::npos) << failed.message;
  }));
}

TEST_P(Grow, a_job_that_is_not_open_says_so) {
  Transports::expect_success(2, [](Communicator& comm) {
    EXPECT_EQ(comm.door(), "");
    EXPECT_EQ(error_of([&] { comm.grow(); }).kind, ErrorKind::misuse);
    EXPECT_EQ(sum_of(comm, 1), 2U);
  });
}

INSTANTIATE_TEST_SUITE_P(Over, Grow, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

}  // namespace
}  // namespace qccl::testing
