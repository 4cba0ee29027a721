// The store of ended operations: the engine adds to it, the public log reads it.
//
// Owner: shared by the context and its users' handles. Any thread may call it; while the log is off no thread takes the
// lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "qccl/log.h"

namespace qccl::internal {

class LogStore {
 public:
  // The rank and job whose log it is.
  struct Place {
    int rank = 0;
    int world = 1;
    std::uint64_t job = 0;  // a digest, so that groups of several jobs have identities of their own
    std::string host{};
    std::string clock{};
    std::int64_t unix_offset_ns = 0;
  };

  // The stored form of an operation that has ended. It has no text of its own, so that it needs no allocation.
  struct Entry {
    std::string_view operation{};  // of static storage
    std::uint64_t group_id = 0;
    std::uint64_t sequence = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t bandwidth_bytes = 0;
    std::uint64_t wire_bytes = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t plain_bytes = 0;
    OperationTimes times{};
    Compression compression{};
    std::int32_t peer = -1;
    DataType type = DataType::uint8;
    Algorithm algorithm = Algorithm::automatic;
    DataPath path = DataPath::frames;
    bool is_message = false;
    std::uint32_t name = 0;   // in names_; 0: none
    std::uint32_t error = 0;  // the same
  };
  struct Group {
    std::string name;
    int size = 1;
  };

  explicit LogStore(Place place) : place_(std::move(place)) {}

  bool is_on() const { return mode_.load(std::memory_order_relaxed) != Mode::off; }
  // Whether the log takes an operation that is posted now.
  bool wants(std::string_view operation, std::string_view name) const;
  void add(Entry entry, const std::string& group, int group_size, std::string_view name, std::string_view error);

  // InvalidArgument, with nothing changed, if the file cannot be written.
  Status configure(const LogOptions& options);
  LogOptions options() const;
  RankLog read() const;
  void clear();

  // Writes the file that the options name, if any. ResourceExhausted if it cannot be written.
  Status write_file() const;

 private:
  // listed: operations in prof_ops.
  enum class Mode : std::uint8_t { off, listed, all };

  std::uint32_t number_of(std::string_view text);
  OperationRecord record(const Entry& entry) const;
  void make_room();
  std::string path(const LogOptions& options) const;

  const Place place_;
  std::atomic<Mode> mode_{Mode::off};  // relaxed: a thread that turns it on orders no operation by it

  mutable std::mutex mutex_;  // guards the following members
  LogOptions options_;
  std::deque<Entry> entries_;
  std::uint64_t dropped_ = 0;
  std::unordered_map<std::uint64_t, Group> groups_;  // of the entries
  std::vector<std::string> names_{""};
  std::unordered_map<std::string, std::uint32_t> number_of_name_;
};

}  // namespace qccl::internal
