#include "group/inside/inside_steps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "group/communicator_state.h"
#include "job/context.h"

namespace qccl::internal {
namespace {

// Smaller calls are as fast over shared memory.
constexpr std::size_t kLeastBytes = 64 * 1024;
// A tensor that hosts of 5, 7 and 8 ranks share has 280 units. With many more the rest is no longer small.
constexpr std::size_t kMostUnits = 1024;

// Between hosts a call has this much longer: where a rank is missing, its host says so first. The others only see that
// the host is late.
constexpr Milliseconds kBlameTime{500};

// Longer timeouts than this overflow in other libraries.
constexpr Milliseconds kLongest = std::chrono::hours(24 * 365);

std::byte* at(void* buffer, std::size_t bytes) { return static_cast<std::byte*>(buffer) + bytes; }
const std::byte* at(const void* buffer, std::size_t bytes) { return static_cast<const std::byte*>(buffer) + bytes; }

// Of the types that libraries inside hosts can add.
bool can_be_added(DataType type) {
  switch (type) {
    case DataType::float32:
    case DataType::float64:
    case DataType::float16:
    case DataType::bfloat16:
    case DataType::int32:
    case DataType::int64: return true;
    default: return false;
  }
}

bool can_be_added(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::min:
    case ReduceOp::max:
    case ReduceOp::prod: return true;
    default: return false;
  }
}

// The sum of an average is divided once, between the hosts.
ReduceOp inside_op(ReduceOp op) { return op == ReduceOp::avg ? ReduceOp::sum : op; }

std::shared_ptr<CommunicatorState> open(CommunicatorState& group, const std::vector<int>& ranks,
                                        const std::string& name) {
  return group.subgroup(ranks, fmt::format("{}/{}", group.group().name, name), {});
}

}  // namespace

// ---- InsideMemory

InsideMemory::Taken InsideMemory::take(std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const Taken& each) { return each.bytes >= bytes && each.bytes / 2 <= bytes; };
    if (const auto found = std::ranges::find_if(free_, fits); found != free_.end()) {
      Taken taken = std::move(*found);
      free_.erase(found);
      return taken;
    }
  }
  return {Block(new std::byte[bytes]), bytes};
}

void InsideMemory::give_back(Taken taken) {
  if (taken.block == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (free_.size() == kKept) free_.erase(free_.begin());
  free_.push_back(std::move(taken));
}

// ---- InsideSteps

InsideSteps::InsideSteps(CommunicatorState& group, const comm::Context& context, const InsideFactory& make_inside)
    : clock_(context.clock()), layout_(context.hosts_of(group.group().ranks), group.group().rank) {
  const std::string name = fmt::format("host of {}", layout_.own_host().front());
  host_ = open(group, layout_.own_host(), name);
  ending_host_ = host_->dup();
  open_shares(group);
  if (layout_.own_host().size() == 1) return;
  Communicator host(host_);
  const auto make = [&](const char* part) {
    auto made = make_inside({.name = fmt::format("{}/{:016x}/{}", host_->group().name, host_->group().id, part),
                             .rank = static_cast<int>(layout_.place),
                             .size = static_cast<int>(layout_.own_host().size()),
                             .timeout = std::chrono::ceil<Milliseconds>(context.settings().options.init_timeout),
                             .group = host});
    if (made != nullptr) return made;
    throw Error(group.group().failure(ErrorKind::misuse, "use_inside(): the factory returned null"));
  };
  first_ = make("first");
  second_ = make("second");
}

InsideSteps::~InsideSteps() = default;

// All ranks open the groups in one order, so that none waits for another that waits for it.
void InsideSteps::open_shares(CommunicatorState& group) {
  if (layout_.units > kMostUnits) return;
  for (const comm::HostLayout::Cell& cell : layout_.cells) {
    if (!layout_.owns(cell)) continue;
    Share share{cell, nullptr};
    if (layout_.hosts.size() > 1) {
      share.owners = open(group, cell.owners, fmt::format("between hosts {}", cell.begin));
      share.owners->with_builder([&](comm::CallBuilder& builder) { builder.average_over(group.group().size()); });
    }
    shares_.push_back(std::move(share));
  }
}

bool InsideSteps::suits(const CollectiveCall& call) const {
  const CallOptions& options = call.options;
  if (call.counts || options.keep_input || options.stream || options.algorithm != Algorithm::automatic) return false;
  const bool is_averaged = is_reduction(call.collective) && options.op == ReduceOp::avg;
  if (is_reduction(call.collective) && (!can_be_added(call.type) || !can_be_added(options.op))) return false;
  if (is_averaged && layout_.hosts.size() == 1) return false;
  const std::size_t bytes = call.count * element_bytes(call.type);
  switch (call.collective) {
    case Collective::all_reduce:
      if (!options.error_feedback.is_none() && !layout_.is_even) return false;
      return layout_.units <= kMostUnits && bytes >= kLeastBytes;
    case Collective::broadcast: return layout_.units <= kMostUnits && bytes >= kLeastBytes;
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all: return layout_.is_regular && bytes >= kLeastBytes / layout_.units;
    default: return false;
  }
}

// The group inside compares nothing: calls that differ could block it, or give wrong sums.
void InsideSteps::agree(const InsideJob& job) {
  const std::vector<int>& ranks = layout_.own_host();
  std::vector<std::uint64_t> fingerprints(ranks.size());
  const auto exchange = [&](const void* own, void* all, std::size_t bytes) {
    host_->run(CollectiveCall{Collective::all_gather, own, all, bytes, DataType::uint8,
                              CallOptions{.compression = none(), .timeout = time_left(job)}});
  };
  exchange(&job.fingerprint, fingerprints.data(), sizeof(job.fingerprint));
  if (std::ranges::count(fingerprints, job.fingerprint) == std::ssize(fingerprints)) return;
  using Text = std::array<char, 256>;
  Text own{};
  job.description.copy(own.data(), own.size() - 1);
  std::vector<Text> all(ranks.size());
  exchange(own.data(), all.data(), sizeof(Text));
  std::string calls;
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    all[place].back() = '\0';
    calls += fmt::format("{}rank {} {}", place == 0 ? "" : ", ", ranks[place], all[place].data());
  }
  throw Error({.kind = ErrorKind::misuse, .message = "the ranks of a host made different calls: " + calls});
}

void InsideSteps::begin(InsideJob& job) {
  if (first_ != nullptr) agree(job);
  switch (job.call.collective) {
    case Collective::all_reduce: return begin_all_reduce(job);
    case Collective::reduce_scatter: return begin_reduce_scatter(job);
    case Collective::all_gather: return begin_all_gather(job);
    case Collective::broadcast: return begin_broadcast(job);
    default: return begin_all_to_all(job);
  }
}

// Each rank's share becomes the host's sum, and then the sum of all hosts.
void InsideSteps::begin_all_reduce(InsideJob& job) {
  const CollectiveCall& call = job.call;
  const std::size_t unit = call.count / layout_.units;
  if (first_ == nullptr) {
    if (call.input != call.output) std::memcpy(call.output, call.input, call.count * element_bytes(call.type));
  } else {
    const std::size_t begin = layout_.own_begin() * unit * element_bytes(call.type);
    const std::size_t share = (layout_.own_end() - layout_.own_begin()) * unit;
    if (rest_of(call) > 0) reduce_rest(job);
    first_->reduce_scatter(inside_call(job, call.input, at(call.output, begin), share));
  }
  post_shares(job);
}

// The elements that are left where a tensor is shared evenly go with the share of the host's last rank.
void InsideSteps::reduce_rest(const InsideJob& job) {
  const CollectiveCall& call = job.call;
  const std::size_t rest = rest_of(call), begin = (call.count - rest) * element_bytes(call.type);
  host_->run(CollectiveCall{
      Collective::reduce, at(call.input, begin), at(call.output, begin), rest, call.type,
      CallOptions{
          .op = inside_op(call.options.op), .root = last_place(), .compression = none(), .timeout = time_left(job)}});
}

// Of each host's part this rank gets the sum of its host's inputs, for the rank of its place there.
void InsideSteps::begin_reduce_scatter(InsideJob& job) {
  const CollectiveCall& call = job.call;
  const std::size_t hosts = layout_.hosts.size();
  const std::size_t bytes = call.count * element_bytes(call.type);
  if (hosts == 1) return first_->reduce_scatter(inside_call(job, call.input, call.output, call.count));
  job.memory = memory_.take(hosts * bytes);
  for (std::size_t host = 0; host < hosts; ++host) {
    const std::size_t begin = host * layout_.own_host().size() * bytes;
    first_->reduce_scatter(inside_call(job, at(call.input, begin), at(job.memory.get(), host * bytes), call.count));
  }
  for (std::size_t host = 0; host < hosts && job.feedback != nullptr; ++host) {
    const std::size_t of_whole = (host * layout_.own_host().size() + layout_.place) * call.count;
    job.residual_parts.push_back({of_whole, host * call.count, call.count});
  }
  post_between(job, job.memory.get(), call.output, call.count);
}

void InsideSteps::begin_all_gather(InsideJob& job) {
  const CollectiveCall& call = job.call;
  const std::size_t hosts = layout_.hosts.size();
  if (hosts == 1) return;
  job.memory = memory_.take(hosts * call.count * element_bytes(call.type));
  post_between(job, call.input, job.memory.get(), call.count);
}

// The root's host has all of it, each rank there sends its share.
void InsideSteps::begin_broadcast(InsideJob& job) {
  const CollectiveCall& call = job.call;
  const auto root = std::ranges::find(layout_.own_host(), call.options.root);
  if (root != layout_.own_host().end() && first_ != nullptr) {
    InsideCall inside = inside_call(job, nullptr, call.output, call.count);
    inside.root = static_cast<int>(root - layout_.own_host().begin());
    first_->broadcast(inside);
  }
  post_shares(job);
}

// What the ranks of this host have for the ranks of this place comes to this rank, host by host.
void InsideSteps::begin_all_to_all(InsideJob& job) {
  const CollectiveCall& call = job.call;
  const std::size_t hosts = layout_.hosts.size();
  const std::size_t count = layout_.own_host().size() * call.count;
  const std::size_t bytes = count * element_bytes(call.type);
  if (hosts == 1) return first_->all_to_all(inside_call(job, call.input, call.output, call.count));
  job.memory = memory_.take(hosts * bytes);
  for (std::size_t host = 0; host < hosts; ++host) {
    first_->all_to_all(inside_call(job, at(call.input, host * bytes), at(job.memory.get(), host * bytes), call.count));
  }
  post_between(job, job.memory.get(), call.output, count);
}

// In place in the output.
void InsideSteps::post_shares(InsideJob& job) {
  const CollectiveCall& call = job.call;
  const std::size_t unit = call.count / layout_.units;
  for (const Share& share : shares_) {
    if (share.owners == nullptr) continue;
    const std::size_t begin = share.cell.begin * unit;
    const std::size_t end = share.cell.end == layout_.units ? call.count : share.cell.end * unit;
    if (job.feedback != nullptr) job.residual_parts.push_back({begin, 0, end - begin});
    CallOptions options = options_between(job);
    options.together = options.together * (share.cell.end - share.cell.begin) / layout_.units;
    if (call.collective == Collective::broadcast) {
      const auto has_root = [&](const std::vector<int>& host) {
        return std::ranges::find(host, call.options.root) != host.end();
      };
      options.root = static_cast<int>(std::ranges::find_if(layout_.hosts, has_root) - layout_.hosts.begin());
    }
    std::byte* const own = at(call.output, begin * element_bytes(call.type));
    job.between.push_back(
        share.owners->post(CollectiveCall{call.collective, own, own, end - begin, call.type, std::move(options)}));
  }
}

void InsideSteps::post_between(InsideJob& job, const void* input, void* output, std::size_t count) {
  CallOptions options = options_between(job);
  options.together /= layout_.own_host().size();
  job.between.push_back(shares_.front().owners->post(
      CollectiveCall{job.call.collective, input, output, count, job.call.type, std::move(options)}));
}

CallOptions InsideSteps::options_between(InsideJob& job) const {
  CallOptions options = job.call.options;
  options.timeout = time_left(job) + kBlameTime;
  options.error_feedback = {};
  if (job.feedback == nullptr) return options;
  std::size_t count = 0;
  for (const ResidualPart& part : job.residual_parts) count += part.count;
  job.share_feedback = ErrorFeedback(count, job.feedback->counter());
  float* const share = job.share_feedback.residual().data();
  for (const ResidualPart& part : job.residual_parts) {
    std::copy_n(job.feedback->residual() + part.of_whole, part.count, share + part.of_share);
  }
  options.error_feedback = job.share_feedback;
  return options;
}

void InsideSteps::end(InsideJob& job) {
  const CollectiveCall& call = job.call;
  if (call.collective == Collective::all_reduce || call.collective == Collective::broadcast) gather_shares(job);
  if (call.collective == Collective::all_gather) {
    const std::size_t bytes = call.count * element_bytes(call.type);
    const std::byte* const gathered = job.memory.get();
    for (std::size_t host = 0; host < layout_.hosts.size(); ++host) {
      const void* const own = gathered == nullptr ? call.input : gathered + host * bytes;
      void* const output = at(call.output, host * layout_.own_host().size() * bytes);
      second_->all_gather(inside_call(job, own, output, call.count));
    }
  }
  memory_.give_back(std::move(job.memory));
}

void InsideSteps::gather_shares(const InsideJob& job) {
  if (second_ == nullptr) return;
  const std::size_t rest = rest_of(job.call);
  const std::size_t unit = job.call.count / layout_.units;
  const std::size_t share = (layout_.own_end() - layout_.own_begin()) * unit;
  const void* const own = at(job.call.output, layout_.own_begin() * unit * element_bytes(job.call.type));
  second_->all_gather(inside_call(job, own, job.call.output, share));
  if (rest == 0) return;
  void* const last = at(job.call.output, (job.call.count - rest) * element_bytes(job.call.type));
  ending_host_->run(
      CollectiveCall{Collective::broadcast, nullptr, last, rest, job.call.type,
                     CallOptions{.root = last_place(), .compression = none(), .timeout = time_left(job)}});
}

InsideCall InsideSteps::inside_call(const InsideJob& job, const void* input, void* output, std::size_t count) const {
  return {.input = input,
          .output = output,
          .count = count,
          .type = job.call.type,
          .op = inside_op(job.call.options.op),
          .timeout = time_left(job)};
}

Milliseconds InsideSteps::time_left(const InsideJob& job) const {
  const auto left = std::chrono::duration_cast<Milliseconds>(job.deadline - clock_.now());
  return std::clamp(left, Milliseconds(1), kLongest);
}

void InsideSteps::abort() noexcept {
  if (first_ != nullptr) first_->abort();
  if (second_ != nullptr) second_->abort();
}

std::string InsideSteps::describe_host() const {
  return fmt::format("host {} (ranks {})", layout_.host, fmt::join(layout_.own_host(), ", "));
}

std::vector<std::shared_ptr<CommunicatorState>> InsideSteps::groups() const {
  std::vector<std::shared_ptr<CommunicatorState>> groups{host_, ending_host_};
  for (const Share& share : shares_) {
    if (share.owners != nullptr) groups.push_back(share.owners);
  }
  return groups;
}

}  // namespace qccl::internal
