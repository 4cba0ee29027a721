#include "plan/check/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>

#include "base/digest/digest.h"
#include "plan/algorithms/registry.h"

namespace qccl::plan {
namespace {

// The contents of a slice. `shape` distinguishes the order and association in which the sources were added, and which
// sums were encoded on the way.
struct Value {
  std::vector<Source> sources;
  std::uint64_t shape = 0;
  friend bool operator==(const Value&, const Value&) = default;
};

Value input_value(int rank, std::uint64_t begin) {
  return {{{rank, begin}}, digest(static_cast<std::uint64_t>(rank) + 1, begin)};
}

void append(Value& sum, const Value& value) {
  const bool is_first = sum.sources.empty();
  sum.sources.insert(sum.sources.end(), value.sources.begin(), value.sources.end());
  const auto [low, high] = std::minmax(sum.shape, value.shape);  // addition of two is commutative
  sum.shape = is_first ? value.shape : digest(low, high);
}

Value encoded(Value value) {
  value.shape = digest(value.shape, 0xE2C0DEDULL);
  return value;
}

std::string to_string(const Value& value) {
  std::string text;
  for (const Source& source : value.sources) {
    text += fmt::format("{}{}@{}", text.empty() ? "" : " ", source.rank, source.begin);
  }
  return text;
}

template <class... Arguments>
Failure wrong(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  return Failure(ErrorKind::invalid_argument, fmt::format(text, std::forward<Arguments>(arguments)...));
}

using StreamKey = std::tuple<int, int, int, std::uint32_t>;  // from, to, phase, chunk

Status check_stream_ends(const std::vector<RankSchedule>& schedules) {
  std::map<StreamKey, int> ends;  // senders minus receivers
  for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
    for (const Lane& lane : schedules[static_cast<std::size_t>(rank)].lanes) {
      for (const Step& step : lane.steps) {
        for (const int peer : step.peers) {
          const bool arrives = receives(step.kind);
          const auto [from, to] = arrives ? std::pair(peer, rank) : std::pair(rank, peer);
          ends[{from, to, step.phase, lane.chunk}] += arrives ? -1 : 1;
        }
      }
    }
  }
  for (const auto& [key, difference] : ends) {
    const auto& [from, to, phase, chunk] = key;
    if (difference > 0) {
      return wrong("rank {} sends chunk {} to rank {} in phase {}, which nobody receives", from, chunk, to, phase);
    }
    if (difference < 0) {
      return wrong("rank {} waits for chunk {} from rank {} in phase {}, which nobody sends", to, chunk, from, phase);
    }
  }
  return {};
}

Status check_order(const std::vector<RankSchedule>& schedules) {
  for (std::size_t rank = 0; rank < schedules.size(); ++rank) {
    const auto& lanes = schedules[rank].lanes;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      if (lanes[i].after < -1 || lanes[i].after >= static_cast<int>(i)) {
        return wrong("rank {}, lane {}: is after lane {}, which is no earlier one", rank, i, lanes[i].after);
      }
      if (lanes[i].slice_by_slice && lanes[i].after < 0) {
        return wrong("rank {}, lane {}: goes slice by slice after no lane", rank, i);
      }
    }
  }
  return {};
}

// The outputs of all ranks, as far as they are written.
class Outputs {
 public:
  struct Cell {
    std::uint64_t count = 0;
    Value value;
  };
  using Cells = std::map<std::uint64_t, Cell>;  // by first element

  explicit Outputs(const std::vector<Request>& requests) : requests_(requests), ranks_(requests.size()) {}

  Cell& cell(int rank, std::uint64_t begin) { return ranks_[static_cast<std::size_t>(rank)][begin]; }

  // The last written cell that overlaps these elements, or null.
  const Cells::value_type* overlapping(int rank, std::int64_t begin, std::uint64_t count) const {
    const Cells& cells = ranks_[static_cast<std::size_t>(rank)];
    const std::int64_t end = begin + static_cast<std::int64_t>(count);
    if (end <= 0 || count == 0) return nullptr;
    const auto behind = cells.lower_bound(static_cast<std::uint64_t>(end));
    if (behind == cells.begin()) return nullptr;
    const auto& last = *std::prev(behind);
    return static_cast<std::int64_t>(last.first + last.second.count) > begin ? &last : nullptr;
  }

  Status check_complete() const {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) QCCL_TRY(check_rank(static_cast<int>(rank)));
    return {};
  }

  // Ranks hold the same bits: the same additions and encodings, in the same order.
  Status check_equal() const {
    std::map<std::uint64_t, std::pair<std::size_t, const Cell*>> first;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const auto& [begin, cell] : ranks_[rank]) {
        const auto [known, is_new] = first.try_emplace(begin, rank, &cell);
        if (is_new || known->second.second->value.shape == cell.value.shape) continue;
        return wrong("ranks {} and {} disagree on element {}: [{}] and [{}], summed or encoded differently",
                     known->second.first, rank, begin, to_string(known->second.second->value), to_string(cell.value));
      }
    }
    return {};
  }

 private:
  Status check_rank(int rank) const {
    const Cells& cells = ranks_[static_cast<std::size_t>(rank)];
    std::size_t seen = 0;
    for (const Expected& expected : expected_output(requests_, rank)) {
      const std::uint64_t end = expected.output.begin + expected.output.count;
      for (std::uint64_t position = expected.output.begin; position < end; ++seen) {
        const auto cell = cells.find(position);
        const std::uint64_t offset = position - expected.output.begin;
        const Value value = cell == cells.end() ? Value{} : cell->second.value;
        if (const std::string fault = fault_of(value, expected.sources, offset); !fault.empty()) {
          return wrong("rank {} ends with [{}] at element {}, {}; it should be [{}] from {} on", rank,
                       value.sources.empty() ? "nothing" : to_string(value), position, fault,
                       to_string(Value{expected.sources, 0}), offset);
        }
        position += cell->second.count;
        if (position > end) break;
      }
    }
    if (seen == cells.size()) return {};
    return wrong("rank {} writes where nothing belongs", rank);
  }

  // "" if the value is right.
  std::string fault_of(const Value& value, std::vector<Source> want, std::uint64_t offset) const {
    for (Source& source : want) source.begin += offset;
    std::vector<Source> got = value.sources;
    const bool is_ordered = std::ranges::is_sorted(got);
    std::ranges::sort(got);
    if (got == want) {
      const bool needs_order = adds_in_rank_order(requests_[0].collective, requests_[0].algorithm);
      return is_ordered || !needs_order ? "" : "which is not in rank order";
    }
    for (const Source& source : want) {
      const auto times = std::ranges::count(got, source);
      if (times == 0) return fmt::format("which lacks the contribution of rank {}", source.rank);
      if (times > 1) return fmt::format("which has the contribution of rank {} {} times", source.rank, times);
    }
    return "which has more than belongs there";
  }

  const std::vector<Request>& requests_;
  std::vector<Cells> ranks_;
};

struct Frame {
  std::uint64_t slice;
  std::uint64_t count;
  Value value;
};

struct LaneState {
  std::uint64_t slice = 0;
  std::size_t step = 0;
  std::size_t peer = 0;  // next of the step's peers to serve
  Value accumulator;
  Value received;
  Value result;  // of finish
  bool result_is_encoded = false;
};

// In which order a rank's lanes have their turns.
enum class Turns { from_first, from_last };

// Runs all ranks' lanes.
class Checker {
 public:
  Checker(const std::vector<Request>& requests, const std::vector<RankSchedule>& schedules, Turns turns)
      : turns_(turns),
        requests_(requests),
        request_(requests.front()),
        schedules_(schedules),
        outputs_(requests),
        encoded_(schedules.size()) {
    for (const RankSchedule& schedule : schedules) lanes_.emplace_back(schedule.lanes.size());
  }

  Status run() {
    QCCL_TRY(check_order(schedules_));
    QCCL_TRY(check_stream_ends(schedules_));
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
        const std::size_t count = lanes_[rank].size();
        for (std::size_t turn = 0; turn < count; ++turn) {
          moved |= advance(static_cast<int>(rank), turns_ == Turns::from_first ? turn : count - 1 - turn);
          if (!error_.empty()) return Failure(ErrorKind::invalid_argument, error_);
        }
      }
    }
    QCCL_TRY(check_ended());
    QCCL_TRY(outputs_.check_complete());
    return is_shared_result(request_.collective) ? outputs_.check_equal() : Status();
  }

 private:
  struct Cursor {
    int rank;
    std::size_t index;  // of the lane
    const Lane& lane;
    LaneState& state;
    Range slice;  // in the lane's chunk
  };

  std::uint64_t slices(const Lane& lane) const {
    if (lane.count == 0) return 1;  // a frame without payload
    return slice_count(lane.count, request_.slice_elements);
  }
  bool may_begin(int rank, const Lane& lane, std::uint64_t slice) const {
    if (lane.after < 0) return slice < slices(lane);
    const auto own = static_cast<std::size_t>(rank), leader = static_cast<std::size_t>(lane.after);
    const std::uint64_t ended = lanes_[own][leader].slice;
    return slice < open_slices(lane, slices(lane), ended, slices(schedules_[own].lanes[leader]));
  }

  // Runs steps of a lane until it blocks; returns true if it took any.
  bool advance(int rank, std::size_t lane_index) {
    const Lane& lane = schedules_[static_cast<std::size_t>(rank)].lanes[lane_index];
    LaneState& state = lanes_[static_cast<std::size_t>(rank)][lane_index];
    bool moved = false;
    while (may_begin(rank, lane, state.slice) && error_.empty()) {
      const Range slice = slice_range(lane.count, request_.slice_elements, state.slice);
      if (!take({rank, lane_index, lane, state, slice}, lane.steps[state.step])) return moved;
      moved = true;
      state.peer = 0;
      if (++state.step < lane.steps.size()) continue;
      const std::uint64_t next = state.slice + 1;
      state = LaneState{};
      state.slice = next;
    }
    return moved;
  }

  bool take(const Cursor& at, const Step& step) {
    LaneState& state = at.state;
    switch (step.kind) {
      case StepKind::send_input:
        return send_all(at, step, travelling(at, step, read_input(at))) && note_encode(at, step);
      case StepKind::local_reduce:
        return append_to(state, step.quantized ? travelling(at, step, read_input(at)) : read_input(at));
      case StepKind::recv_reduce: return receive(at, step) && append_to(state, state.received);
      case StepKind::send_sum:
        return send_all(at, step, travelling(at, step, state.accumulator)) && note_encode(at, step);
      case StepKind::finish: state.result = state.accumulator; return put(at, state.result);
      case StepKind::send_result: return send_result(at, step);
      case StepKind::recv_copy: return receive(at, step) && put(at, state.received);
      case StepKind::forward: return send_all(at, step, state.received);
      case StepKind::local_copy: return put(at, step.quantized ? travelling(at, step, read_input(at)) : read_input(at));
    }
    return false;
  }

  static bool append_to(LaneState& state, const Value& value) {
    append(state.accumulator, value);
    return true;
  }

  Value travelling(const Cursor& at, const Step& step, Value value) const {
    return request_.compressed && !step.raw && at.lane.count > 0 ? encoded(std::move(value)) : value;
  }

  Value read_input(const Cursor& at) {
    const std::uint64_t begin = at.lane.input_begin + at.slice.begin;
    const auto shift = in_place_shift(requests_[static_cast<std::size_t>(at.rank)], at.rank);
    const std::int64_t aliased = static_cast<std::int64_t>(begin) + shift.value_or(0);
    const auto* written = shift ? outputs_.overlapping(at.rank, aliased, at.slice.count) : nullptr;
    // A piece copied onto itself is unchanged.
    const auto is_same = [&] {
      return written->second.value == input_value(at.rank, written->first - static_cast<std::uint64_t>(*shift));
    };
    if (written != nullptr && !is_same()) fail(at, "reads input that its result has overwritten");
    return input_value(at.rank, begin);
  }

  bool send_result(const Cursor& at, const Step& step) {
    if (!at.state.result_is_encoded) {
      at.state.result_is_encoded = true;
      at.state.result = travelling(at, step, std::move(at.state.result));
      note_encode(at, step);
      if (!at.lane.scratch && at.lane.count > 0) {
        outputs_.cell(at.rank, at.lane.output_begin + at.slice.begin).value = at.state.result;
      }
    }
    return send_all(at, step, at.state.result);
  }

  bool note_encode(const Cursor& at, const Step& step) {
    if (!is_reduction(request_.collective) || !request_.compressed || step.raw || at.lane.count == 0) return true;
    if (!encoded_[static_cast<std::size_t>(at.rank)].insert({at.lane.chunk, at.state.slice}).second) {
      fail(at, "encodes a slice twice");
    }
    return true;
  }

  bool put(const Cursor& at, const Value& value) {
    if (at.lane.count == 0 || at.lane.scratch) return true;
    const std::uint64_t begin = at.lane.output_begin + at.slice.begin;
    if (outputs_.overlapping(at.rank, static_cast<std::int64_t>(begin), at.slice.count) != nullptr) {
      fail(at, "writes an output slice twice");
    }
    outputs_.cell(at.rank, begin) = {at.slice.count, value};
    return true;
  }

  // One slot per stream: a send waits until the stream's last frame was taken.
  bool send_all(const Cursor& at, const Step& step, const Value& value) {
    for (; at.state.peer < step.peers.size(); ++at.state.peer) {
      auto& stream = streams_[{at.rank, step.peers[at.state.peer], step.phase, at.lane.chunk}];
      if (!stream.empty()) return false;
      stream.push_back({at.state.slice, at.slice.count, value});
    }
    return true;
  }

  bool receive(const Cursor& at, const Step& step) {
    auto& stream = streams_[{step.peers[0], at.rank, step.phase, at.lane.chunk}];
    if (stream.empty()) return false;
    const Frame& frame = stream.front();
    if (frame.slice != at.state.slice || frame.count != at.slice.count) {
      fail(at, fmt::format("meets slice {} of {} elements from rank {}", frame.slice, frame.count, step.peers[0]));
    }
    at.state.received = frame.value;
    stream.pop_front();
    return true;
  }

  void fail(const Cursor& at, const std::string& fault) {
    if (!error_.empty()) return;
    error_ = fmt::format("rank {}, lane {}, chunk {}, slice {}, step {}: {}", at.rank, at.index, at.lane.chunk,
                         at.state.slice, at.state.step, fault);
  }

  Status check_ended() const {
    for (std::size_t rank = 0; rank < schedules_.size(); ++rank) {
      for (std::size_t i = 0; i < lanes_[rank].size(); ++i) {
        const Lane& lane = schedules_[rank].lanes[i];
        const LaneState& state = lanes_[rank][i];
        if (state.slice == slices(lane)) continue;
        return wrong("deadlock: rank {} waits in lane {}, chunk {}, slice {}, step {} ({})", rank, i, lane.chunk,
                     state.slice, state.step, plan::to_string(lane.steps[state.step].kind));
      }
    }
    for (const auto& [key, stream] : streams_) {
      const auto& [from, to, phase, chunk] = key;
      if (!stream.empty()) {
        return wrong("rank {} sends more of chunk {} to rank {} in phase {} than that takes", from, chunk, to, phase);
      }
    }
    return {};
  }

  const Turns turns_;
  const std::vector<Request>& requests_;
  const Request& request_;
  const std::vector<RankSchedule>& schedules_;
  std::vector<std::vector<LaneState>> lanes_;
  std::map<StreamKey, std::deque<Frame>> streams_;
  Outputs outputs_;
  std::vector<std::set<std::pair<std::uint32_t, std::uint64_t>>> encoded_;  // chunk, slice
  std::string error_;
};

}  // namespace

Status check(const std::vector<Request>& requests, const std::vector<RankSchedule>& schedules) {
  QCCL_TRY(Checker(requests, schedules, Turns::from_first).run());
  return Checker(requests, schedules, Turns::from_last).run();
}

Status check(const Request& request, const std::vector<RankSchedule>& schedules) {
  return check(std::vector<Request>(schedules.size(), request), schedules);
}

}  // namespace qccl::plan
