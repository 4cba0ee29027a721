#include "engine/state/operation.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "observe/log_store.h"

namespace qccl::engine {

std::string Waiting::progress() const { return fmt::format("got {} of {} bytes", received_bytes, expected_bytes); }

std::string rate_text(std::uint64_t bytes, Nanoseconds duration) {
  const double rate = 8e-3 * static_cast<double>(bytes) / std::chrono::duration<double>(duration).count();
  if (rate < 1e3) return fmt::format("{:.3g} kbit/s", rate);
  return rate < 1e6 ? fmt::format("{:.3g} Mbit/s", rate * 1e-3) : fmt::format("{:.3g} Gbit/s", rate * 1e-6);
}

std::uint64_t PostedCall::input_bytes() const {
  if (is_message()) return arguments_.message->count * element_bytes(arguments_.message->type);
  if (call().collective == Collective::barrier) return 0;
  const bool is_scatter = call().collective == Collective::scatter;
  const std::uint64_t elements = is_scatter ? piece_elements(call(), group_.rank.value()) : plan().input_elements();
  return elements * element_bytes(call().type);
}

CallEnd PostedCall::ending(bool well) const {
  return {.group = *group_.totals,
          .number = sequence_,
          .kind = call_kind(arguments_),
          .counts = arguments_.is_logged,
          .well = well,
          .bytes = input_bytes(),
          .payload_bytes = payload_bytes_,
          .plain_bytes = plain_bytes_};
}

std::string Operation::describe() const {
  std::string text = call().describe();
  const std::string place = describe_place(arguments());
  if (!place.empty()) text.insert(text.size() - 1, ", " + place);
  return text;
}

Failure Operation::unexpected(GroupRank peer, const std::string& what) const {
  return Failure(ErrorKind::corrupt_data, fmt::format("rank {} {}", group_.world_rank(peer), what));
}

}  // namespace qccl::engine
