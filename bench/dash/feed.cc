// A page of a job that does not exist: ranks that make calls at a given rate, for bench/dash/smooth.
//
//   feed RANKS CALLS_PER_SECOND     prints the page's URL, then runs until its standard input ends
#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "dashboard/dashboard.h"

namespace qccl::dashboard {
namespace {

OperationRecord call_of(int rank, int ranks, std::uint64_t number, std::int64_t posted, std::int64_t period) {
  OperationRecord record;
  record.operation = "all_reduce";
  record.name = fmt::format("layer{}", number % 6);
  record.group = "world";
  record.group_id = 1;
  record.group_size = ranks;
  record.sequence = number;
  record.bytes = record.bandwidth_bytes = 65536;
  record.wire_bytes = record.payload_bytes = 16384;
  record.plain_bytes = 131072;
  const bool is_late = rank == static_cast<int>(number / 1000) % ranks;
  record.times = {.posted_ns = posted + (is_late ? period / 3 : 0),
                  .started_ns = posted + period / 3,
                  .ended_ns = posted + period / 3 * 2};
  return record;
}

// Adds the calls of all ranks as they become due. Returns the seconds that adding took.
double feed(JobView& view, int ranks, double rate) {
  const SteadyClock clock;
  const auto now = [&] { return clock.now().time_since_epoch().count(); };
  const auto period = static_cast<std::int64_t>(1e9 / rate);
  const std::int64_t begin = now();
  std::int64_t spent = 0;
  std::uint64_t number = 0;
  pollfd input{.fd = 0, .events = POLLIN, .revents = 0};
  while (::poll(&input, 1, 5) == 0) {
    const std::int64_t due = now();
    for (; begin + static_cast<std::int64_t>(number + 1) * period < due; ++number) {
      const std::int64_t posted = begin + static_cast<std::int64_t>(number) * period;
      for (int rank = 0; rank < ranks; ++rank) view.add(rank, call_of(rank, ranks, number + 1, posted, period));
    }
    spent += now() - due;
  }
  fmt::print("{:.0f} calls a second, {:.1f} % of a core\n",
             static_cast<double>(number) * ranks * 1e9 / static_cast<double>(now() - begin),
             100 * static_cast<double>(spent) / static_cast<double>(now() - begin));
  return 0;
}

}  // namespace
}  // namespace qccl::dashboard

int main(int argc, char** argv) {
  using namespace qccl;
  using namespace qccl::dashboard;
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 64;
  const double rate = argc > 2 ? std::atof(argv[2]) : 1000;
  const SteadyClock clock;
  const std::int64_t offset = (time_of_day() - clock.now().time_since_epoch()).count();
  JobView view;
  for (int rank = 0; rank < ranks; ++rank) {
    view.add_rank({.rank = rank,
                   .world = ranks,
                   .host = fmt::format("node{}", rank / 8),
                   .clock = "one",
                   .unix_offset_ns = offset,
                   .dropped = 0,
                   .records = {}});
  }
  const auto page = Dashboard::open(parse_address("127.0.0.1:0").take_or_throw(), view).take_or_throw();
  fmt::print("{}\n", page->url());
  std::fflush(stdout);
  feed(view, ranks, rate);
  return 0;
}
