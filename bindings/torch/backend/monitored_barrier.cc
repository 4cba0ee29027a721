#include "backend/monitored_barrier.h"

#include <optional>
#include <string>
#include <vector>

namespace qccl::torch_binding {
namespace {

[[noreturn]] void fail(const Communicator& group, const std::string& message) {
  ErrorInfo info;
  info.kind = ErrorKind::deadline_exceeded;
  info.message = message;
  info.rank = group.rank();
  info.operation = "monitored_barrier";
  throw Error(std::move(info));
}

// Waits for an operation and returns its error, or nothing if it succeeded.
std::optional<ErrorInfo> failure_of(const Work& work) {
  try {
    work.wait();
    return std::nullopt;
  } catch (const Error& error) {
    return error.info();
  }
}

std::string in_time(std::optional<std::chrono::milliseconds> timeout) {
  return timeout ? " in " + std::to_string(timeout->count()) + " ms" : "";
}

void hear_all_and_answer(Communicator& group, const MessageOptions& options, bool wait_all_ranks) {
  std::vector<char> words(static_cast<std::size_t>(group.size()));
  std::vector<Work> heard;
  for (int rank = 1; rank < group.size(); ++rank) {
    heard.push_back(group.recv_async(&words[static_cast<std::size_t>(rank)], 1, DataType::uint8, rank, options));
  }
  std::string missing;
  std::string cause;
  for (int rank = 1; rank < group.size(); ++rank) {
    const auto failure = failure_of(heard[static_cast<std::size_t>(rank - 1)]);
    if (!failure || (!wait_all_ranks && !missing.empty())) continue;
    if (missing.empty()) cause = failure->message;
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (!missing.empty()) {
    fail(group, (wait_all_ranks ? "Ranks " : "Rank ") + missing + " failed to pass monitoredBarrier" +
                    in_time(options.timeout) + ". " + cause);
  }
  std::vector<Work> answers;
  for (int rank = 1; rank < group.size(); ++rank) {
    answers.push_back(group.send_async(&words[0], 1, DataType::uint8, rank, options));
  }
  for (const Work& answer : answers) answer.wait();
}

void report_and_hear(Communicator& group, const MessageOptions& options) {
  const char word = 0;
  char answer = 0;
  const Work reported = group.send_async(&word, 1, DataType::uint8, 0, options);
  const Work answered = group.recv_async(&answer, 1, DataType::uint8, 0, options);
  auto failure = failure_of(reported);
  const auto second = failure_of(answered);
  if (!failure) failure = second;
  if (!failure) return;
  fail(group, "Rank " + std::to_string(group.rank()) +
                  " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank "
                  "0. Rank 0's error says which rank is missing. " +
                  failure->message);
}

}  // namespace

void monitored_barrier(Communicator& group, int tag, std::optional<std::chrono::milliseconds> timeout,
                       bool wait_all_ranks) {
  if (timeout && timeout->count() <= 0) {
    fail(group, "Rank " + std::to_string(group.rank()) + " timed out in monitoredBarrier" + in_time(timeout));
  }
  MessageOptions options;
  options.tag = tag;
  options.timeout = timeout;
  if (group.rank() == 0) {
    hear_all_and_answer(group, options, wait_all_ranks);
  } else {
    report_and_hear(group, options);
  }
}

}  // namespace qccl::torch_binding
