// The last operations of each process group of this rank. After a failure they show which rank called which operation.
// The JSON has the format of torch's flight recorder (version 2.10), so that its tools and users can read it; times are
// nanoseconds since 1970.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace qccl::torch_binding {

// Thread-safe. A forked child may not use it.
class OperationTrace {
 public:
  static constexpr std::size_t kKept = 500;  // operations of a group

  struct Tensor {
    std::vector<std::int64_t> size;
    const char* type;  // not copied
  };
  struct Operation {
    const char* name = "";       // "qccl:all_reduce"; not copied
    bool is_message = false;     // a send or recv
    int peer = -1;               // of a message; -1: any
    std::uint64_t sequence = 0;  // c10d's number in its group; messages are numbered separately
    // Returns the library's number, as in errors ("#7"); with several parts, the first part's. 0: none yet.
    std::function<std::uint64_t()> number = {};
    std::size_t parts = 1;  // operations of the library
    std::int64_t timeout_ms = 0;
    std::vector<Tensor> inputs{};
    std::vector<Tensor> outputs{};
  };
  // An operation that has begun; call end() for it once.
  struct Handle {
    std::size_t group = 0;
    std::uint64_t record = 0;
  };

  explicit OperationTrace(int rank) : rank_(rank) {}

  // `ranks` holds the ranks' numbers in the job, in group order.
  std::size_t add_group(std::string name, std::vector<std::int64_t> ranks);
  Handle begin(std::size_t group, Operation operation);
  // `failure`: the error's text, "" for success. The first failure of a group writes the dump.
  void end(Handle handle, const std::string& failure);

  // Sets the file that a failure is written to: `prefix` followed by the rank and ".json". "": none.
  void dump_to(std::string prefix);
  std::string to_json() const;

 private:
  struct Entry {
    std::uint64_t record;
    Operation operation;
    std::uint64_t number;  // set once it has ended
    std::int64_t created_ns;
    std::int64_t ended_ns;  // 0: not yet
    std::string failure;
  };
  struct Group {
    std::string name;
    std::vector<std::int64_t> ranks;
    std::deque<Entry> entries;
    std::uint64_t last_begun = 0;  // collectives, by sequence
    std::uint64_t last_ended = 0;
    bool failed = false;
  };

  const int rank_;
  mutable std::mutex mutex_;  // guards the members below
  std::string dump_prefix_;
  std::uint64_t records_ = 0;
  std::deque<Group> groups_;
};

}  // namespace qccl::torch_binding
