#include "engine/call/executable_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/options.h"
#include "codec/geometry.h"
#include "engine/frames/frame_sender.h"

namespace qccl::engine {
namespace {

using plan::Step;
using plan::StepKind;

static_assert((plan::kMaxPhase & kEagerFlag) == 0);

std::uint64_t near_window(const ResolvedCall& call) {
  return call.memory == MemoryKind::device ? kDeviceWindow : kWindow;
}

// A stream's first slices that may go before a grant: all of a small one; of a long one between distant ranks, half of
// its window.
std::uint64_t eager_slices(const ExecutablePlan& plan, int world, std::uint64_t elements, bool raw) {
  const std::uint64_t slices = plan.slice_count(elements);
  const std::uint64_t longest = plan.payload_limit(plan.slice_length(elements, 0), raw);
  const std::uint64_t before_last = (slices - 1) * longest;
  const std::uint64_t last = plan.payload_limit(plan.slice_length(elements, slices - 1), raw);
  const bool is_far = plan.call().window_bytes > 0;
  const std::uint64_t limit = is_far ? plan::stream_window(plan.call().window_bytes, world) / 2 : kEagerStreamBytes;
  if (before_last + last <= limit && (is_far || slices <= near_window(plan.call()))) return slices;
  return is_far ? limit / longest : 0;
}

plan::Request request_of(const ResolvedCall& call, int world, const Codec* codec, std::uint64_t slice_elements) {
  const auto elements = static_cast<std::size_t>(slice_elements);
  const std::size_t slice_bytes =
      codec != nullptr ? codec->max_encoded_bytes(elements) : elements * element_bytes(call.type);
  return {.collective = call.collective,
          .algorithm = call.algorithm,
          .world = world,
          .root = call.root,
          .count = call.count,
          .bucket_size = codec != nullptr ? codec->bucket_size() : 1,
          .slice_elements = slice_elements,
          .compressed = codec != nullptr,
          .lanes = plan::lanes_of_window(call.window_bytes, world, slice_bytes),
          .counts = {call.counts.begin(), call.counts.end()},
          .hosts = {call.hosts.begin(), call.hosts.end()},
          .shares = {call.shares.begin(), call.shares.end()}};
}

// The lane sends to the peer of this step before it waits for it.
bool sends_first(const plan::Lane& lane, const Step& step) {
  return std::any_of(lane.steps.data(), &step, [&](const Step& earlier) {
    return plan::sends(earlier.kind) && std::ranges::find(earlier.peers, step.peers[0]) != earlier.peers.end();
  });
}

}  // namespace

// Every rank sends something to each peer of its streams at once, so that calls that differ meet; otherwise ranks that
// name different roots would wait for each other until their deadline. A peer that gets neither eager input nor a grant
// that it needs gets one that it does not need, or a request. A peer that the lane sends to before it waits for it
// needs none: plans have no deadlock, so of the ranks blocked in one call at least one waits for a rank outside of it,
// and has already sent to it.
StreamLayout::StreamLayout(const ExecutablePlan& plan, int world) {
  std::vector<char> addressed(static_cast<std::size_t>(world));
  const auto address = [&](GroupRank peer) { return std::exchange(addressed[peer.index()], 1) != 0; };
  for (const plan::Lane& lane : plan.schedule().lanes) {
    std::vector<std::size_t>& of_steps = first.emplace_back();
    for (const Step& step : lane.steps) {
      const bool sends = plan::sends(step.kind);
      of_steps.push_back(sends ? outbound.size() : inbound.size());
      if (!sends && !plan::receives(step.kind)) continue;
      Stream stream{.phase = step.phase,
                    .chunk = lane.chunk,
                    .lane = first.size() - 1,
                    .slices = plan.slice_count(lane.count),
                    .payload_limit = plan.payload_limit(lane.count, step.raw),
                    .eager_slices = eager_slices(plan, world, lane.count, step.raw),
                    .window = near_window(plan.call()),
                    .least_grant = near_window(plan.call()) / 2};
      stream.announces = sends ? !stream.is_eager() : stream.is_eager() && !sends_first(lane, step);
      for (const int peer : step.peers) {
        stream.peer = GroupRank(peer);
        (sends ? outbound : inbound).add(stream);
      }
    }
    const Step& opening = lane.steps.front();
    if (opening.kind != StepKind::send_input || lane.after != -1) continue;
    if (eager_slices(plan, world, lane.count, opening.raw) == 0) continue;
    for (const int peer : opening.peers) address(GroupRank(peer));
  }
  for (const Stream& stream : inbound) {
    if (!stream.is_eager()) address(stream.peer);
  }
  for (StreamList* const list : {&inbound, &outbound}) {
    for (Stream& stream : *list) stream.announces = stream.announces && !address(stream.peer);
    list->sort_addresses();
  }
  if (plan.call().window_bytes > 0) share_window(plan.call().window_bytes);
}

// Peers send together in a phase, and begin the next one before it has ended. What a peer sends in several streams, it
// sends in turns.
void StreamLayout::share_window(std::uint64_t bytes) {
  std::map<std::uint16_t, std::set<GroupRank>> peers_of_phase;
  for (const Stream& stream : inbound) peers_of_phase[stream.phase].insert(stream.peer);
  for (Stream& stream : inbound) {
    const std::uint64_t share = plan::stream_window(bytes, 1 + static_cast<int>(peers_of_phase[stream.phase].size()));
    const std::uint64_t slice_bytes = std::max<std::uint64_t>(1, stream.payload_limit / stream.slices);
    stream.window = std::max({std::uint64_t{2}, stream.eager_slices, share / slice_bytes});
    stream.least_grant = std::max<std::uint64_t>(1, stream.window / 4);
  }
}

void StreamList::sort_addresses() {
  addresses_.reserve(streams_.size());
  for (const Stream& stream : streams_) {
    addresses_.push_back({stream.peer, stream.phase, stream.chunk, static_cast<std::uint32_t>(addresses_.size())});
  }
  std::ranges::sort(addresses_, {}, &Address::key);
}

std::size_t StreamList::find(GroupRank peer, std::uint16_t phase, std::uint32_t chunk) const {
  const auto wanted = std::tuple(peer, phase, chunk);
  const auto found = std::ranges::lower_bound(addresses_, wanted, {}, &Address::key);
  return found != addresses_.end() && found->key() == wanted ? found->index : kNone;
}

wire::FrameHeader frame_header(const wire::FrameHeader& call, wire::FrameKind kind, const Stream& stream,
                               std::uint64_t slice) {
  wire::FrameHeader header = call;
  header.kind = kind;
  header.phase = stream.phase;
  header.chunk = stream.chunk;
  header.slice = static_cast<std::uint32_t>(slice);
  return header;
}

ExecutablePlan::ExecutablePlan(const ResolvedCall& call, int world, GroupRank rank, std::shared_ptr<const Codec> codec)
    : call_(std::make_shared<const ResolvedCall>(call)),
      fingerprint_(call.fingerprint()),
      codec_(std::move(codec)),
      slice_elements_(qccl::slice_elements(codec_.get(), call.type, call.slice_bytes,
                                           plan::most_slice_bytes(call.window_bytes, world))),
      input_elements_(engine::input_elements(call, world, rank.value())),
      output_elements_(engine::output_elements(call, world, rank.value())),
      schedule_(call.board ? plan::RankSchedule{}
                           : plan::schedule_of(request_of(call, world, codec_.get(), slice_elements_), rank.value())),
      streams_(*this, world) {}

std::uint64_t ExecutablePlan::slice_count(std::uint64_t elements) const {
  return elements == 0 ? 1 : qccl::slice_count(elements, slice_elements_);
}

std::size_t ExecutablePlan::slice_length(std::uint64_t elements, std::uint64_t slice) const {
  return elements == 0 ? 0 : static_cast<std::size_t>(slice_range(elements, slice_elements_, slice).count);
}

std::size_t ExecutablePlan::payload_limit(std::uint64_t elements, bool raw) const {
  const auto count = static_cast<std::size_t>(elements);
  return raw || codec_ == nullptr ? count * element_bytes(call_->type) : codec_->max_encoded_bytes(count);
}

std::optional<std::size_t> ExecutablePlan::find_payload_bytes(ConstBytes source, std::uint64_t elements,
                                                              bool raw) const {
  if (!raw && codec_ != nullptr) return codec_->find_encoded_bytes(source, static_cast<std::size_t>(elements));
  const std::size_t bytes = payload_limit(elements, raw);
  return source.size() >= bytes ? std::optional(bytes) : std::nullopt;
}

}  // namespace qccl::engine
