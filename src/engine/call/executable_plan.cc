#include "engine/call/executable_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "base/digest/digest.h"
#include "base/options.h"
#include "codec/geometry.h"
#include "engine/frame_sender.h"

namespace qccl::engine {
namespace {

constexpr std::size_t kNamedCounts = 8;  // of a list; a description has its limit

std::string list_of(std::span<const std::uint64_t> counts) {
  const auto named = counts.first(std::min(counts.size(), kNamedCounts));
  return fmt::format("[{}{}]", fmt::join(named, " "), counts.size() > named.size() ? " ..." : "");
}

std::string counts_of(const ResolvedCall& call) {
  const std::span<const std::uint64_t> counts(call.counts);
  if (counts.empty()) return fmt::format("count={}", call.count);
  if (call.collective != Collective::all_to_all) return "counts=" + list_of(counts);
  const std::size_t world = counts.size() / 2;
  return fmt::format("sends={}, receives={}", list_of(counts.first(world)), list_of(counts.last(world)));
}

std::uint64_t total(std::span<const std::uint64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

using plan::Step;
using plan::StepKind;

static_assert((plan::kMaxPhase & kEagerFlag) == 0);

std::uint64_t near_window(const ResolvedCall& call) {
  return call.memory == MemoryKind::device ? kDeviceWindow : kWindow;
}

// A stream's first slices that may go before a grant: all of a small one; of a long one between distant ranks, what
// fits its share of the eager budget.
std::uint64_t eager_slices(const ExecutablePlan& plan, int world, std::uint64_t elements, bool raw) {
  const std::uint64_t slices = plan.slice_count(elements);
  const std::uint64_t limit = eager_stream_bytes(plan.call().window_bytes, world);
  const std::uint64_t longest = plan.payload_limit(plan.slice_length(elements, 0), raw);
  const std::uint64_t before_last = (slices - 1) * longest;
  const std::uint64_t last = plan.payload_limit(plan.slice_length(elements, slices - 1), raw);
  const bool is_far = plan.call().window_bytes > 0;
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
          .hosts = {call.hosts.begin(), call.hosts.end()}};
}

// The lane sends to the peer of this step before it waits for it.
bool sends_first(const plan::Lane& lane, const Step& step) {
  return std::any_of(lane.steps.data(), &step, [&](const Step& earlier) {
    return plan::sends(earlier.kind) && std::ranges::find(earlier.peers, step.peers[0]) != earlier.peers.end();
  });
}

}  // namespace

std::uint64_t ResolvedCall::fingerprint() const {
  const std::uint64_t parts[] = {static_cast<std::uint64_t>(collective), count,
                                 static_cast<std::uint64_t>(type),       static_cast<std::uint64_t>(op),
                                 static_cast<std::uint64_t>(root),       static_cast<std::uint64_t>(algorithm),
                                 static_cast<std::uint64_t>(board),      static_cast<std::uint64_t>(slice_bytes)};
  std::uint64_t value = digest({reinterpret_cast<const char*>(parts), sizeof(parts)}, 0x7143434CULL);
  if (!compression.is_none()) {
    const auto& settings = compression.settings;
    value = digest(compression.name(), value);
    value = digest({reinterpret_cast<const char*>(&settings), sizeof(settings)}, value);
  }
  if (error_feedback) value = digest("error feedback", value);
  if (region != 0) value = digest(region_offset, digest(region, value));
  if (memory == MemoryKind::device) value = digest("device memory", value);
  if (window_bytes != 0) value = digest(window_bytes, value);
  for (const int host : hosts) value = digest(static_cast<std::uint64_t>(host), value);
  if (counts.empty()) return value;
  value = digest(static_cast<std::uint64_t>(counts.size()), value);
  if (collective == Collective::all_to_all) return value;  // known to each pair alone
  for (const std::uint64_t part : counts) value = digest(part, value);
  return value;
}

std::string ResolvedCall::describe() const {
  const bool is_default_size = slice_bytes == 0 || slice_bytes == kDefaultSliceBytes || slice_bytes == kLongSliceBytes;
  const std::string slices = is_default_size ? "" : fmt::format("slice_bytes={}", slice_bytes);
  if (collective == Collective::barrier) return fmt::format("barrier({})", slices);
  std::string text =
      fmt::format("{}{}({}, {}", to_string(collective), counts.empty() ? "" : "_v", counts_of(*this), to_string(type));
  if (is_reduction(collective)) text += fmt::format(", {}", to_string(op));
  if (is_rooted(collective)) text += fmt::format(", root={}", root);
  if (algorithm != Algorithm::one_shot) text += fmt::format(", {}", to_string(algorithm));
  if (!compression.is_none()) text += ", " + compression.to_string();
  if (error_feedback) text += ", error feedback";
  if (memory == MemoryKind::device) text += ", device memory";
  if (region != 0) text += fmt::format(", byte {} of shared buffer {}", region_offset, region);
  const bool one_host = std::equal(hosts.begin() + (hosts.empty() ? 0 : 1), hosts.end(), hosts.begin());
  if (!one_host) text += fmt::format(", hosts=[{}]", fmt::join(hosts, " "));
  if (!is_default_size) text += ", " + slices;
  return text + ")";
}

std::uint64_t piece_elements(const ResolvedCall& call, int rank) {
  return call.counts.empty() ? call.count : call.counts[static_cast<std::size_t>(rank)];
}

std::uint64_t piece_begin(const ResolvedCall& call, int rank) {
  const auto before = static_cast<std::size_t>(rank);
  if (call.counts.empty()) return before * call.count;
  return total(std::span(call.counts).first(before));
}

std::uint64_t input_elements(const ResolvedCall& call, int world, int rank) {
  switch (call.collective) {
    case Collective::reduce_scatter:
    case Collective::all_to_all: return piece_begin(call, world);
    case Collective::scatter: return rank == call.root ? piece_begin(call, world) : 0;
    case Collective::all_gather:
    case Collective::gather: return piece_elements(call, rank);
    default: return call.count;
  }
}

std::uint64_t output_elements(const ResolvedCall& call, int world, int rank) {
  switch (call.collective) {
    case Collective::all_gather: return piece_begin(call, world);
    case Collective::gather: return rank == call.root ? piece_begin(call, world) : 0;
    case Collective::reduce: return rank == call.root ? call.count : 0;
    case Collective::reduce_scatter:
    case Collective::scatter: return piece_elements(call, rank);
    case Collective::all_to_all:
      if (call.counts.empty()) return piece_begin(call, world);
      return total(std::span(call.counts).last(static_cast<std::size_t>(world)));
    default: return call.count;
  }
}

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
                    .window = near_window(plan.call())};
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

// Streams of one phase arrive together, and those of the next phase begin before they have ended.
void StreamLayout::share_window(std::uint64_t bytes) {
  std::map<std::uint16_t, std::uint64_t> streams_of_phase;
  for (const Stream& stream : inbound) ++streams_of_phase[stream.phase];
  for (Stream& stream : inbound) {
    const std::uint64_t share = bytes / streams_of_phase[stream.phase];
    const std::uint64_t slice_bytes = std::max<std::uint64_t>(1, stream.payload_limit / stream.slices);
    stream.window = std::max({kWindow, stream.eager_slices, share / slice_bytes});
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
      slice_elements_(qccl::slice_elements(codec_.get(), call.type, call.slice_bytes)),
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

}  // namespace qccl::engine
