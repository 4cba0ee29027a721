#include "base/options.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace qccl {
namespace {

Failure bad_value(const char* name, const std::string& value, const std::string& allowed) {
  return Failure(ErrorKind::invalid_argument, fmt::format("{}={}: use {}", name, value, allowed));
}

template <class T>
Status read_number(const char* name, double minimum, double maximum, double unit, T& target) {
  const auto text = environment(name);
  if (!text) return {};
  const auto value = parse_number<double>(*text);
  if (!value || !(*value >= minimum && *value <= maximum)) {
    return bad_value(name, *text, fmt::format("a number from {} to {}", minimum, maximum));
  }
  target = T(static_cast<std::int64_t>(std::llround(*value * unit)));
  return {};
}

template <class T>
Status read_number(const char* name, double minimum, double maximum, double unit, std::optional<T>& target) {
  T value{};
  QCCL_TRY(read_number(name, minimum, maximum, unit, value));
  if (environment(name)) target = value;
  return {};
}

template <class T>
Status read_choice(const char* name, const std::vector<std::pair<std::string_view, T>>& choices, T& target) {
  const auto text = environment(name);
  if (!text) return {};
  std::string allowed;
  for (const auto& [word, value] : choices) {
    if (*text == word) {
      target = value;
      return {};
    }
    allowed.append(allowed.empty() ? "" : word == choices.back().first ? " or " : ", ").append(word);
  }
  return bad_value(name, *text, allowed);
}

Status read_connections(std::optional<int>& target) {
  constexpr int kMost = 16;  // wire::kMaxConnections
  const auto text = environment("QCCL_CONNECTIONS");
  if (!text || text == "auto") return {};
  target = parse_number<int>(*text);
  if (target && *target >= 1 && *target <= kMost) return {};
  return bad_value("QCCL_CONNECTIONS", *text, fmt::format("auto or a number from 1 to {}", kMost));
}

// "2x4"
Status read_hosts(std::optional<HostGrid>& target) {
  const auto text = environment("QCCL_HOSTS");
  if (!text) return {};
  const auto cross = text->find('x');
  const auto hosts = parse_number<int>(text->substr(0, cross));
  const auto ranks = parse_number<int>(text->substr(cross == std::string::npos ? text->size() : cross + 1));
  if (!hosts || !ranks || *hosts < 1 || *ranks < 1) {
    return bad_value("QCCL_HOSTS", *text, "HOSTSxRANKS, for example 2x4 for two hosts of four ranks");
  }
  target = HostGrid{*hosts, *ranks};
  return {};
}

// The parser of the specification checks the whole text.
std::optional<std::string> qnccl_specification() {
  if (environment("RING_ALLREDUCE_VERSION") != "new") return std::nullopt;
  return fmt::format("minmax:bits={},bucket_size={}", environment("BITS").value_or("8"),
                     environment("bucket_size").value_or("1024"));
}

}  // namespace

Result<Options> Options::from_environment() {
  Options options;
  QCCL_TRY(read_choice<TransportChoice>(
      "QCCL_TRANSPORT",
      {{"auto", TransportChoice::automatic}, {"shm", TransportChoice::shm}, {"tcp", TransportChoice::tcp}},
      options.transport));
  QCCL_TRY(read_hosts(options.hosts));
  options.algorithm = environment("QCCL_ALGORITHM");
  options.compression = environment("QCCL_COMPRESSION");
  options.sites = environment("QCCL_SITES");
  options.profile = environment("QCCL_PROFILE");
  options.link_rate = environment("QCCL_LINK_RATE");
  options.log_file = environment("QCCL_LOG_FILE");
  options.dashboard = environment("QCCL_DASHBOARD");
  options.metrics_file = environment("QCCL_METRICS_FILE");
  options.qnccl_compression = qnccl_specification();
  constexpr double kYear = 365.0 * 24 * 3600;
  QCCL_TRY(read_number("QCCL_COMPRESSION_MIN_BYTES", 0, 1e15, 1, options.compression_min_bytes));
  QCCL_TRY(read_number("QCCL_TIMEOUT", 0.001, kYear, 1e9, options.timeout));
  QCCL_TRY(read_number("QCCL_INIT_TIMEOUT", 0.001, kYear, 1e9, options.init_timeout));
  QCCL_TRY(read_number("QCCL_METRICS_SECONDS", 0.01, kYear, 1e9, options.metrics_every));
  QCCL_TRY(read_number("QCCL_PEER_TIMEOUT", 0.1, kYear, 1e9, options.peer_timeout));
  QCCL_TRY(read_number("QCCL_SLICE_BYTES", 4096, 262144, 1, options.slice_bytes));
  QCCL_TRY(read_number("QCCL_WINDOW_BYTES", 1 << 20, 1 << 30, 1, options.window_bytes));
  QCCL_TRY(read_connections(options.connections));
  QCCL_TRY(read_number("QCCL_PINNED_LIMIT", 0, 1e15, 1, options.pinned_limit));
  QCCL_TRY(read_choice<bool>("QCCL_OPEN", {{"on", true}, {"off", false}}, options.open));
  QCCL_TRY(read_number("QCCL_DOOR_PORT", 0, 65535, 1, options.door_port));
  options.join = environment("QCCL_JOIN");
  QCCL_TRY(read_choice<std::optional<StreamOrder>>(
      "QCCL_STREAM_ORDER", {{"host", StreamOrder::host}, {"gate", StreamOrder::gate}}, options.stream_order));
  options.device_kernels = environment("QCCL_DEVICE_KERNELS").value_or("");
  options.congestion = environment("QCCL_CONGESTION").value_or(options.congestion);
  QCCL_TRY(read_number("QCCL_SPIN_US", 0, 1e6, 1e3, options.spin));
  QCCL_TRY(read_number("QCCL_SEED", 0, 1e15, 1, options.seed));
  int checksum = 1;
  QCCL_TRY(read_number("QCCL_CHECKSUM", 0, 1, 1, checksum));
  options.checksum = checksum != 0;
  QCCL_TRY(read_choice<std::optional<bool>>("QCCL_ENCRYPTION", {{"on", true}, {"off", false}}, options.encryption));
  return options;
}

}  // namespace qccl
