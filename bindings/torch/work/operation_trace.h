// The last operations of a process's groups, for reports of hangs and mismatches: qccl.trace(), and files that a
// failure writes, in which one sees which rank called which operation.
//
// Both have the format of torch's flight recorder (version 2.10), so that `torchfrtrace` reads the files: it knows no
// backend "qccl", so operations bear gloo's name. Times are nanoseconds since 1970. Where torch's recorder files a
// message under its process group, whose other members the tool would then miss in it, this one files it under a group
// of the two ranks, "GROUP:SENDER->RECEIVER", and numbers it there; one from any source under a group of this rank
// alone until it has come.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace qccl::torch_binding {

// Thread-safe. A forked child may not use it.
class OperationTrace {
 public:
  static constexpr std::size_t kKept = 2000;  // operations, as in torch's recorder

  struct Tensor {
    std::vector<std::int64_t> size;
    const char* type;  // not copied
  };
  struct Operation {
    const char* name = "";       // "qccl:all_reduce"; not copied
    bool is_message = false;     // a send or recv
    int peer = -1;               // of a message, in its group; -1: any
    std::uint64_t sequence = 0;  // of a collective: c10d's number in its group
    // Returns the library's number, as in errors ("#7"); with several parts, the first part's. 0: none yet.
    std::function<std::uint64_t()> number = {};
    std::size_t parts = 1;  // operations of the library
    std::int64_t timeout_ms = 0;
    std::vector<Tensor> inputs{};
    std::vector<Tensor> outputs{};
  };
  // An operation that has begun; call end() for it once.
  using Record = std::uint64_t;

  explicit OperationTrace(int rank) : rank_(rank) {}

  // `ranks` holds the ranks' numbers in the job, in group order. A name that an earlier group has gets a suffix.
  std::size_t add_group(std::string name, std::vector<std::int64_t> ranks);
  Record begin(std::size_t group, Operation operation);
  // `failure`: the error's text, "" for success. `source`: of a message from any source the rank that it came from, in
  // its group.
  void end(std::size_t group, Record record, const std::string& failure, int source = -1);
  // The group has failed, perhaps while it had no operation here.
  void fail(std::size_t group);

  // The first failure of a group writes the file `prefix` followed by the rank, in pickle's format; the end of its last
  // operation in flight writes it anew. "": no file.
  void dump_to(std::string prefix);
  bool writes_dumps() const;
  std::string to_json() const;

 private:
  // A group as the recorder shows it.
  struct Shown {
    std::string name;
    std::vector<std::int64_t> ranks;
  };
  struct Group {
    std::string given_name;
    Shown shown;
    std::uint64_t last_begun = 0;  // collectives, by sequence
    std::uint64_t last_ended = 0;
    std::uint64_t in_flight = 0;
    bool failed = false;
  };
  // An operation's name, "gloo:all_reduce" or "gloo:send 0->1", and the group that a message is shown in.
  struct Channel {
    std::string title;
    Shown shown;
  };
  struct Entry {
    std::size_t group = 0;
    Operation operation{};
    Channel channel{};
    std::uint64_t sequence = 0;  // in the group that it is shown in
    std::uint64_t number = 0;    // set once it has ended
    std::int64_t created_ns = 0;
    std::int64_t ended_ns = 0;  // 0: not yet
    std::string failure{};
  };

  void file(Entry& entry);
  Channel channel_of(const Group& group, const Operation& operation) const;
  nlohmann::ordered_json tree_of(const Entry& entry, Record record) const;
  nlohmann::ordered_json to_tree() const;
  void write_dump();

  const int rank_;
  std::mutex writing_;        // a dump; taken before mutex_
  mutable std::mutex mutex_;  // guards the members below
  std::string dump_prefix_;
  std::deque<Group> groups_;
  Record first_record_ = 0;  // of entries_.front()
  std::deque<Entry> entries_;
  std::map<std::string, std::uint64_t> messages_;  // so far, by the group that they are shown in
};

}  // namespace qccl::torch_binding
