#include "plan/checker.h"

#include <fmt/format.h>

#include <deque>
#include <map>
#include <set>
#include <tuple>

namespace qccl::plan {
namespace {

// A slice's symbolic value: which ranks' inputs it holds, in the order they were added.
using Value = std::vector<int>;

struct Frame {
  std::uint32_t chunk;
  std::uint64_t slice;
  Value value;
};

struct LaneState {
  std::uint64_t slice = 0;
  std::size_t step = 0;
  std::size_t peer = 0;  // next of the step's peers to serve
  Value accumulator;
  Value received;
};

using StreamKey = std::tuple<int, int, int>;               // from, to, phase
using CellKey = std::tuple<std::uint32_t, std::uint64_t>;  // chunk, slice

class Checker {
 public:
  Checker(const Request& request, const std::vector<Role>& roles)
      : request_(request), roles_(roles), chunks_(chunks(request)), outputs_(roles.size()), encoded_(roles.size()) {
    for (const Role& role : roles) lanes_.emplace_back(role.lanes.size());
  }

  Status run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < roles_.size(); ++rank) {
        for (std::size_t lane = 0; lane < lanes_[rank].size(); ++lane) {
          moved |= advance(static_cast<int>(rank), lane);
          if (!error_.empty()) return Failure(ErrorKind::invalid_argument, error_);
        }
      }
    }
    QCCL_TRY(all_done());
    return outputs_are_complete();
  }

 private:
  std::uint64_t slices(const Lane& lane) const {
    if (lane.count == 0) return 1;  // a frame without payload
    return slice_count(lane.count, request_.slice_elements);
  }

  // Runs steps of a lane until it blocks; true if any step was taken.
  bool advance(int rank, std::size_t lane_index) {
    const Lane& lane = roles_[rank].lanes[lane_index];
    LaneState& state = lanes_[rank][lane_index];
    bool moved = false;
    while (state.slice < slices(lane) && error_.empty()) {
      if (!take(rank, lane, state, lane.steps[state.step])) return moved;
      moved = true;
      state.peer = 0;
      if (++state.step == lane.steps.size()) {
        state = LaneState{.slice = state.slice + 1, .step = 0, .peer = 0, .accumulator = {}, .received = {}};
      }
    }
    return moved;
  }

  bool take(int rank, const Lane& lane, LaneState& state, const Step& step) {
    const CellKey cell{lane.chunk, state.slice};
    switch (step.kind) {
      case StepKind::send_input:
        if (request_.collective == Collective::all_reduce && outputs_[rank].contains(cell)) {
          fail(rank, lane, state, "sends input that its result has overwritten");
        }
        return send_all(rank, lane, state, step, {rank}) && note_encode(rank, lane, cell);
      case StepKind::local_reduce: return append(state.accumulator, {rank});
      case StepKind::recv_reduce: return receive(rank, lane, state, step) && append(state.accumulator, state.received);
      case StepKind::finish: return put(rank, lane, state, state.accumulator);
      case StepKind::send_result:
        return send_all(rank, lane, state, step, outputs_[rank][cell]) && note_encode(rank, lane, cell);
      case StepKind::recv_copy: return receive(rank, lane, state, step) && put(rank, lane, state, state.received);
      case StepKind::forward: return send_all(rank, lane, state, step, state.received);
      case StepKind::local_copy: return put(rank, lane, state, {rank});
    }
    return false;
  }

  static bool append(Value& accumulator, const Value& value) {
    accumulator.insert(accumulator.end(), value.begin(), value.end());
    return true;
  }

  bool note_encode(int rank, const Lane& lane, const CellKey& cell) {
    const bool reduces =
        request_.collective == Collective::all_reduce || request_.collective == Collective::reduce_scatter;
    if (!reduces || !request_.compressed || lane.count == 0) return true;
    if (!encoded_[rank].insert(cell).second) {
      error_ = fmt::format("rank {} encodes chunk {} slice {} twice", rank, std::get<0>(cell), std::get<1>(cell));
    }
    return true;
  }

  bool put(int rank, const Lane& lane, const LaneState& state, const Value& value) {
    if (lane.count == 0) return true;
    if (!outputs_[rank].emplace(CellKey{lane.chunk, state.slice}, value).second) {
      fail(rank, lane, state, "writes an output slice twice");
    }
    return true;
  }

  // One slot per stream: a send waits until the stream's last frame was taken.
  bool send_all(int rank, const Lane& lane, LaneState& state, const Step& step, const Value& value) {
    for (; state.peer < step.peers.size(); ++state.peer) {
      auto& stream = streams_[{rank, step.peers[state.peer], step.phase}];
      if (!stream.empty()) return false;
      stream.push_back({lane.chunk, state.slice, value});
    }
    return true;
  }

  bool receive(int rank, const Lane& lane, LaneState& state, const Step& step) {
    auto& stream = streams_[{step.peers[0], rank, step.phase}];
    if (stream.empty()) return false;
    const Frame& frame = stream.front();
    if (frame.chunk != lane.chunk || frame.slice != state.slice) {
      fail(rank, lane, state,
           fmt::format("meets chunk {} slice {} from rank {}", frame.chunk, frame.slice, step.peers[0]));
    }
    state.received = frame.value;
    stream.pop_front();
    return true;
  }

  void fail(int rank, const Lane& lane, const LaneState& state, const std::string& what) {
    error_ = fmt::format("rank {}, chunk {}, slice {}, step {}: {}", rank, lane.chunk, state.slice, state.step, what);
  }

  Status all_done() const {
    for (std::size_t rank = 0; rank < roles_.size(); ++rank) {
      for (std::size_t i = 0; i < lanes_[rank].size(); ++i) {
        const Lane& lane = roles_[rank].lanes[i];
        const LaneState& state = lanes_[rank][i];
        if (state.slice == slices(lane)) continue;
        return Failure(ErrorKind::invalid_argument,
                       fmt::format("deadlock: rank {} waits in chunk {}, slice {}, step {} ({})", rank, lane.chunk,
                                   state.slice, state.step, to_string(lane.steps[state.step].kind)));
      }
    }
    for (const auto& [key, stream] : streams_) {
      if (stream.empty()) continue;
      return Failure(ErrorKind::invalid_argument,
                     fmt::format("rank {} sends to rank {} in phase {}, which nobody receives", std::get<0>(key),
                                 std::get<1>(key), std::get<2>(key)));
    }
    return {};
  }

  // What `rank` must hold of `chunk` at the end; nothing if it need not hold it.
  std::optional<Value> expected(int rank, std::uint32_t chunk) const {
    Value everyone;
    for (int source = 0; source < request_.world; ++source) everyone.push_back(source);
    switch (request_.collective) {
      case Collective::all_reduce: return everyone;
      case Collective::reduce_scatter:
        if (static_cast<int>(chunk) != rank) return std::nullopt;
        return everyone;
      case Collective::all_gather: return Value{static_cast<int>(chunk)};
      case Collective::broadcast:
        if (rank == request_.root) return std::nullopt;
        return Value{request_.root};
      case Collective::barrier: break;
    }
    return std::nullopt;
  }

  Status outputs_are_complete() const {
    for (int rank = 0; rank < static_cast<int>(roles_.size()); ++rank) {
      for (std::uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        const auto want = expected(rank, chunk);
        if (!want) continue;
        const std::uint64_t count = slice_count(chunks_[chunk].count, request_.slice_elements);
        for (std::uint64_t slice = 0; slice < count; ++slice) {
          const auto got = outputs_[rank].find({chunk, slice});
          if (got != outputs_[rank].end() && got->second == *want) continue;
          return Failure(
              ErrorKind::invalid_argument,
              fmt::format("rank {} ends with chunk {} slice {} = [{}], not [{}]", rank, chunk, slice,
                          got == outputs_[rank].end() ? "nothing" : fmt::format("{}", fmt::join(got->second, " ")),
                          fmt::join(*want, " ")));
        }
      }
    }
    return lanes_cover_chunks();
  }

  // Lanes name the place of their chunk in the buffers; it must be the chunk's own.
  Status lanes_cover_chunks() const {
    for (std::size_t rank = 0; rank < roles_.size(); ++rank) {
      for (const Lane& lane : roles_[rank].lanes) {
        if (lane.chunk < chunks_.size() && lane.count == chunks_[lane.chunk].count) continue;
        return Failure(ErrorKind::invalid_argument,
                       fmt::format("rank {} has a lane of {} elements for chunk {}", rank, lane.count, lane.chunk));
      }
    }
    return {};
  }

  const Request& request_;
  const std::vector<Role>& roles_;
  const std::vector<Range> chunks_;
  std::vector<std::vector<LaneState>> lanes_;
  std::map<StreamKey, std::deque<Frame>> streams_;
  std::vector<std::map<CellKey, Value>> outputs_;
  std::vector<std::set<CellKey>> encoded_;
  std::string error_;
};

}  // namespace

Status check(const Request& request, const std::vector<Role>& roles) { return Checker(request, roles).run(); }

Status check(const Request& request) {
  std::vector<Role> roles;
  for (int rank = 0; rank < request.world; ++rank) roles.push_back(make_role(request, rank));
  return check(request, roles);
}

}  // namespace qccl::plan
