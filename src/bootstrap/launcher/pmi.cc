#include "bootstrap/launcher/pmi.h"

#include <fmt/format.h>

#include <mutex>
#include <optional>

#include "base/text.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;
constexpr const char* kKey = "qccl-master";

Result<int> descriptor_in(const EnvironmentLookup& lookup) {
  const auto text = lookup("PMI_FD");
  if (!text) return Failure(ErrorKind::invalid_argument, "PMI_RANK is set but PMI_FD is not");
  const auto number = parse_number<int>(*text);
  if (number && *number >= 0) return *number;
  return Failure(ErrorKind::invalid_argument, fmt::format("PMI_FD is \"{}\": expected a descriptor", *text));
}

Result<os::Fd> connection_in(const EnvironmentLookup& lookup) {
  QCCL_ASSIGN(const int number, descriptor_in(lookup));
  auto socket = os::duplicate_socket(number);
  if (socket) return socket;
  return Failure(ErrorKind::invalid_argument,
                 fmt::format("the launcher's connection (PMI_FD={}) is not open in this process: a program between the "
                             "launcher and this one has closed it",
                             number));
}

// The value of `key` in "cmd=get_result rc=0 value=10.0.0.1:29500".
std::optional<std::string> value_of(const std::string& line, const std::string& key) {
  const auto begin = (" " + line).find(" " + key + "=");
  if (begin == std::string::npos) return std::nullopt;
  const auto from = begin + key.size() + 1;
  return line.substr(from, line.find(' ', from) - from);
}

// One PMI exchange with the launcher.
class Session {
 public:
  Session(os::Fd socket, TimePoint deadline, const Clock& clock)
      : socket_(std::move(socket)), deadline_(deadline), clock_(clock) {}

  Result<std::string> share(int rank, const std::string& text) {
    QCCL_TRY(ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"));
    QCCL_ASSIGN(const auto name, ask("cmd=get_my_kvsname", "my_kvsname"));
    const std::string space = value_of(name, "kvsname").value_or("");
    if (rank == 0) QCCL_TRY(ask(fmt::format("cmd=put kvsname={} key={} value={}", space, kKey, text), "put_result"));
    QCCL_TRY(ask("cmd=barrier_in", "barrier_out"));
    QCCL_ASSIGN(const auto got, ask(fmt::format("cmd=get kvsname={} key={}", space, kKey), "get_result"));
    QCCL_TRY(ask("cmd=finalize", "finalize_ack"));
    return value_of(got, "value").value_or("");
  }

 private:
  // The answer to a request, which must be of kind `expected` and report no failure.
  Result<std::string> ask(const std::string& request, const std::string& expected) {
    auto answer = exchange_lines(request + "\n");
    if (!answer) {
      return Failure(answer.error().kind, fmt::format("the launcher (PMI_FD) did not answer {}: {}",
                                                      request.substr(0, request.find(' ')), answer.error().message));
    }
    if (value_of(*answer, "cmd") == expected && value_of(*answer, "rc").value_or("0") == "0") return answer;
    return Failure(ErrorKind::unsupported,
                   fmt::format("the launcher (PMI_FD) answered \"{}\" to \"{}\"", *answer, request));
  }
  Result<std::string> exchange_lines(const std::string& request) {
    QCCL_TRY(os::write_exactly(socket_, std::as_bytes(std::span(request)), deadline_, clock_));
    std::string line;
    for (char letter = 0; line.size() < kMaxLineBytes; line.push_back(letter)) {
      QCCL_TRY(os::read_exactly(socket_, std::as_writable_bytes(std::span(&letter, 1)), deadline_, clock_));
      if (letter == '\n') return line;
    }
    return Failure(ErrorKind::unsupported, fmt::format("its line has more than {} bytes", kMaxLineBytes));
  }

  os::Fd socket_;
  TimePoint deadline_;
  const Clock& clock_;
};

// The launcher's answer, which a process can get only once.
struct Shared {
  std::mutex mutex;
  std::optional<std::string> text;
};
Shared& shared() {
  static Shared once;
  return once;
}

}  // namespace

Result<std::string> pmi_identity(const EnvironmentLookup& lookup) {
  if (const auto port = lookup("PMI_PORT")) return "pmi " + *port;
  QCCL_ASSIGN(const auto socket, connection_in(lookup));
  QCCL_ASSIGN(const auto launcher, os::peer_credentials(socket));
  return fmt::format("pmi process {}", launcher.process);
}

Result<int> pmi_descriptor(const EnvironmentLookup& lookup) {
  if (!pmi_has_shared()) QCCL_TRY(connection_in(lookup));
  return descriptor_in(lookup);
}

bool pmi_has_shared() {
  const std::lock_guard lock(shared().mutex);
  return shared().text.has_value();
}

Result<std::string> pmi_share(int descriptor, int rank, const std::string& text, TimePoint deadline,
                              const Clock& clock) {
  const std::lock_guard lock(shared().mutex);
  if (shared().text) return *shared().text;
  QCCL_ASSIGN(auto socket, os::duplicate_socket(descriptor));
  QCCL_ASSIGN(shared().text, Session(std::move(socket), deadline, clock).share(rank, text));
  return *shared().text;
}

}  // namespace qccl::bootstrap
