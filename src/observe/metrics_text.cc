// Counters in Prometheus' text format. The names of labels (comm_name, collective, hostname, rank, nranks) and their
// values (AllReduce) are those of NCCL's Inspector, so that boards can filter both alike.
#include <fmt/format.h>

#include <cctype>
#include <functional>
#include <string_view>
#include <utility>

#include "qccl/status.h"

namespace qccl {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// A label's value: backslash, quote and line end are escaped.
std::string escaped(std::string_view value) {
  std::string out;
  for (const char letter : value) {
    if (letter == '\\' || letter == '"') out += '\\';
    out += letter == '\n' ? std::string("\\n") : std::string(1, letter);
  }
  return out;
}

// "all_reduce": "AllReduce"
std::string nccl_name(std::string_view operation) {
  std::string name;
  bool is_first = true;
  for (const char letter : operation) {
    if (letter != '_') name += is_first ? static_cast<char>(std::toupper(static_cast<unsigned char>(letter))) : letter;
    is_first = letter == '_';
  }
  return name;
}

Labels labels_of(const RankStatus& rank) {
  return {{"job_id", rank.job},
          {"hostname", rank.host},
          {"pid", std::to_string(rank.process)},
          {"rank", std::to_string(rank.rank)}};
}

class MetricsText {
 public:
  explicit MetricsText(std::span<const RankStatus> ranks) : ranks_(ranks) {}

  // A family: `samples` calls add_sample() for each of a rank's.
  template <class Samples>
  void add(std::string_view name, std::string_view type, std::string_view help, const Samples& samples) {
    family_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    for (const RankStatus& rank : ranks_) {
      if (rank.answered) samples(rank);
    }
  }
  template <class Value>
  void add_sample(const Labels& labels, Value value) {
    std::string list;
    for (const auto& [name, text] : labels) {
      list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", name, escaped(text));
    }
    text_ += fmt::format("{}{{{}}} {}\n", family_, list, value);
  }
  // A family with one sample of each rank.
  template <class Field>
  void add_of_rank(std::string_view name, std::string_view type, std::string_view help, Field field) {
    add(name, type, help, [&](const RankStatus& rank) {
      Labels labels = labels_of(rank);
      labels.emplace_back("nranks", std::to_string(rank.world));
      add_sample(labels, std::invoke(field, rank));
    });
  }
  // A counter with a sample for each kind of call.
  template <class Field>
  void add_of_calls(std::string_view name, std::string_view help, Field field) {
    add(name, "counter", help, [&](const RankStatus& rank) {
      for (const CallCounters& counters : rank.counters) {
        Labels labels = labels_of(rank);
        labels.emplace_back("comm_name", counters.group);
        labels.emplace_back("nranks", std::to_string(counters.group_size));
        labels.emplace_back("collective", nccl_name(counters.operation));
        add_sample(labels, std::invoke(field, counters));
      }
    });
  }
  template <class Field>
  void add_of_lines(std::string_view name, std::string_view type, std::string_view help, Field field) {
    add(name, type, help, [&](const RankStatus& rank) {
      for (const LineStatus& line : rank.lines) {
        Labels labels = labels_of(rank);
        labels.emplace_back("peer", std::to_string(line.peer));
        add_sample(labels, std::invoke(field, line));
      }
    });
  }

  std::string take() { return std::move(text_); }

 private:
  const std::span<const RankStatus> ranks_;
  std::string_view family_;
  std::string text_;
};

double oldest_call_seconds(const RankStatus& rank) { return rank.calls.empty() ? 0 : rank.calls.front().seconds; }

}  // namespace

std::string to_prometheus(std::span<const RankStatus> ranks) {
  MetricsText text(ranks);
  text.add_of_calls("qccl_calls_total", "Calls that have ended well.", &CallCounters::calls);
  text.add_of_calls("qccl_call_failures_total", "Calls that have failed.", &CallCounters::failures);
  text.add_of_calls("qccl_call_input_bytes_total", "Bytes of this rank's inputs.", &CallCounters::bytes);
  text.add_of_calls("qccl_call_payload_bytes_total", "Data that this rank sent, as it was sent, without headers.",
                    &CallCounters::payload_bytes);
  text.add_of_calls("qccl_call_plain_bytes_total", "Size of the same data uncompressed.", &CallCounters::plain_bytes);
  text.add_of_calls("qccl_call_seconds_total", "Time from post to end, summed over calls.", &CallCounters::seconds);
  text.add_of_rank("qccl_job_seconds_total", "counter", "Time since this rank joined.", &RankStatus::seconds);
  text.add_of_rank("qccl_busy_seconds_total", "counter", "Time with at least one call under way.",
                   &RankStatus::busy_seconds);
  text.add_of_rank("qccl_sent_bytes_total", "counter", "Bytes that this rank sent, with headers.",
                   &RankStatus::sent_bytes);
  text.add_of_rank("qccl_saved_bytes_total", "counter", "Bytes that compression saved this rank to send.",
                   &RankStatus::saved_bytes);
  text.add_of_rank("qccl_resent_packets_total", "counter", "TCP packets that this rank's system sent again.",
                   &RankStatus::resent_packets);
  text.add_of_rank("qccl_calls_under_way", "gauge", "Calls that have not ended.",
                   [](const RankStatus& rank) { return rank.calls.size(); });
  text.add_of_rank("qccl_oldest_call_seconds", "gauge", "Age of the oldest call that has not ended; 0: none.",
                   &oldest_call_seconds);
  text.add_of_rank("qccl_warnings", "gauge", "What is wrong at present, by number.",
                   [](const RankStatus& rank) { return rank.warnings.size(); });
  text.add_of_lines("qccl_line_acknowledged_bytes_total", "counter", "Bytes that the peer's system acknowledged.",
                    &LineStatus::acknowledged_bytes);
  text.add_of_lines("qccl_line_busy_seconds_total", "counter", "Time while bytes were on their way to the peer.",
                    &LineStatus::busy_seconds);
  text.add_of_lines("qccl_line_resent_packets_total", "counter", "Packets sent to the peer again.",
                    &LineStatus::resent_packets);
  text.add_of_lines("qccl_line_round_trip_seconds", "gauge", "The shortest round trip measured; 0 on this host.",
                    &LineStatus::round_trip_seconds);
  return text.take();
}

}  // namespace qccl
