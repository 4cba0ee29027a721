// Ranks that make different calls: all of them fail, and the message names both calls.
#include "faults/job.h"

namespace qccl::testing {
namespace {

struct Difference {
  std::string name;
  std::function<void(Communicator&)> usual, odd;
  std::string usual_collective = "all_reduce";
  std::string odd_collective = "all_reduce";
};
void PrintTo(const Difference& difference, std::ostream* out) { *out << difference.name; }

template <class T>
auto all_reduce(std::size_t count, const char* codec = nullptr) {
  return [=](Communicator& comm) {
    std::vector<T> values(count);
    CallOptions options;
    if (codec != nullptr) options.compression = Compression::parse(codec);
    comm.all_reduce(values, options);
  };
}

auto broadcast(std::size_t count, int root) {
  return [=](Communicator& comm) {
    std::vector<float> values(count);
    comm.broadcast(values, {.root = root});
  };
}

std::vector<Difference> differences() {
  const auto barrier = [](Communicator& comm) { comm.barrier(); };
  return {
      {"count", all_reduce<float>(1'000), all_reduce<float>(1'001)},
      {"large_count", all_reduce<float>(1'000'000), all_reduce<float>(900'000)},
      {"small_against_large", all_reduce<float>(4), all_reduce<float>(900'000)},
      {"type", all_reduce<float>(1'000), all_reduce<double>(1'000)},
      {"codec", all_reduce<float>(100'000, "minmax:bits=4"), all_reduce<float>(100'000, "minmax:bits=8")},
      {"codec_or_none", all_reduce<float>(100'000), all_reduce<float>(100'000, "minmax:bits=8")},
      {"root", broadcast(1'000, 0), broadcast(1'000, 1), "broadcast", "broadcast"},
      {"large_root", broadcast(1'000'000, 0), broadcast(1'000'000, 1), "broadcast", "broadcast"},
      {"collective", all_reduce<float>(1'000), barrier, "all_reduce", "barrier"},
  };
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class DifferentCalls : public ::testing::TestWithParam<std::tuple<Difference, TransportChoice>> {};

TEST_P(DifferentCalls, fail_on_every_rank_and_name_both) {
  const auto& [difference, transport] = GetParam();
  run_ranks({.world = 3, .transport = transport}, [&difference = difference](Rank& rank) {
    Communicator comm = rank.init();
    const ErrorInfo failure = failure_of(rank, [&] {
      (rank.rank() == 2 ? difference.odd : difference.usual)(comm);
      comm.barrier();
    });
    EXPECT_EQ(failure.kind, ErrorKind::misuse) << failure.message;
    EXPECT_EQ(failure.peer, 2) << failure.message;
    EXPECT_EQ(count_of(failure.message, "called"), 2u) << failure.message;
    EXPECT_TRUE(contains(failure.message, difference.usual_collective)) << failure.message;
    EXPECT_TRUE(contains(failure.message, difference.odd_collective)) << failure.message;
  });
}

std::string name_of(const ::testing::TestParamInfo<DifferentCalls::ParamType>& info) {
  const auto& [difference, transport] = info.param;
  return difference.name + (transport == TransportChoice::shm ? "_shm" : "_tcp");
}

INSTANTIATE_TEST_SUITE_P(Over, DifferentCalls,
                         ::testing::Combine(::testing::ValuesIn(differences()), both_transports()), name_of);

}  // namespace
}  // namespace qccl::testing
