#include "bootstrap/meeting/rank_text.h"

#include <fmt/format.h>

#include <cstddef>

#include "bootstrap/meeting/card_exchange.h"
#include "os/process.h"

namespace qccl::bootstrap {

Failure named(int rank, int world, ErrorInfo info) {
  info.rank = rank;
  info.message = fmt::format("rank {} of {}: {}", rank, world, info.message);
  return Failure(std::move(info));
}

Failure failure_about(ErrorKind kind, int peer, std::string message) {
  Failure failure(kind, std::move(message));
  failure.info().peer = peer;
  return failure;
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0, last; first < ranks.size(); first = last + 1) {
    last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last == first + 1) last = first;
    text += text.empty() ? "" : ", ";
    text += last == first ? fmt::format("{}", ranks[first]) : fmt::format("{}-{}", ranks[first], ranks[last]);
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string own_process_text() {
  const std::string host = os::host_name();
  return fmt::format("process {} on {}", os::process_id(), host.empty() ? "a host without a name" : host)
      .substr(0, kMaxProcessBytes);
}

std::string seconds_text(Nanoseconds duration) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(duration).count());
}

}  // namespace qccl::bootstrap
