#include "backend/backend.h"
#include "backend/torch_inside.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace qccl::torch_binding {
namespace {

// How long a destroyed group waits for operations that its peers do not finish.
constexpr std::chrono::seconds kShutdownLimit{10};

// Ranks that make no call write a dump as well: one of them may be what the others waited for.
void watch_failure(const Communicator& group, const WorkShare& share) {
  if (!share.trace->writes_dumps()) return;
  const Work failed = group.when_failed();
  failed.notify([failed, pool = share.pool, trace = share.trace, group = share.trace_group] {
    if (!failed.error()) return;
    pool->expect();
    pool->push([trace, group] { trace->fail(group); });
  });
}

std::shared_ptr<WorkShare> share_of_group(const std::shared_ptr<SharedJob>& job, const Communicator& group,
                                          const GroupSpec& spec, std::shared_ptr<GroupHooks> hooks) {
  const std::size_t trace_group = job->trace()->add_group(spec.name, spec.global_ranks);
  auto share = make_share(job, group, std::make_shared<CallbackOrder>(group.name()), trace_group);
  share->may_gate = spec.may_gate;
  share->hooks = std::move(hooks);
  watch_failure(group, *share);
  return share;
}

// The calls move data at the same time, so none may write memory that another uses.
void refuse_collisions(const std::vector<TorchCall>& calls) {
  for (std::size_t later = 1; later < calls.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      require(!calls[earlier].memory.collides_with(calls[later].memory), "coalesced calls", earlier, " (",
              calls[earlier].title, ") and ", later, " (", calls[later].title,
              ") share memory that one of them writes: make them one after the other");
    }
  }
}

// Merges several calls into one that has the tensors, posts and endings of each.
TorchCall merged(std::vector<TorchCall> calls) {
  refuse_collisions(calls);
  TorchCall whole{c10d::OpType::COALESCED, "qccl:coalesced"};
  // Messages alone do not count as a collective, and no barrier waits for them.
  if (std::ranges::all_of(calls, &TorchCall::is_message)) {
    whole.type = c10d::OpType::SEND;
    for (const TorchCall& call : calls) whole.messages.push_back({call.title, call.peer, call.inputs.front()});
  }
  whole.is_gated = true;
  Backend::Tensors outputs;
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  for (TorchCall& call : calls) {
    if (call.later_post) {
      C10_THROW_ERROR(NotImplementedError, std::string(call.title) + " can't be coalesced with other calls");
    }
    for (auto& list : call.outputs) append(outputs, list);
    append(whole.inputs, call.inputs);
    append(whole.posts, call.posts);
    whole.memory.absorb(std::move(call.memory));
    append(whole.endings, call.endings);
    append(whole.earlier, call.earlier);
    append(whole.part_keys, call.part_keys);
    whole.is_gated &= call.is_gated;
    whole.options.timeout = std::max(whole.options.timeout, call.options.timeout);
  }
  whole.outputs = {std::move(outputs)};
  return whole;
}

}  // namespace

std::shared_ptr<WorkShare> make_share(const std::shared_ptr<SharedJob>& job, const Communicator& group,
                                      std::shared_ptr<CallbackOrder> order, std::size_t trace_group) {
  auto share = std::make_shared<WorkShare>();
  share->order = std::move(order);
  share->pool = job->pool();
  share->trace = job->trace();
  share->trace_group = trace_group;
  share->timeout.set(group.timeout());
  share->first_completion_key = JobRegistry::instance().next_completion_keys();
  share->abort_group = [weak = std::weak_ptr(job), group](const std::string& reason) {
    if (const auto alive = weak.lock()) with_torch_errors([&] { alive->abort_group(group, reason); });
  };
  return share;
}

c10::intrusive_ptr<GroupOptions> options_of(const GroupSpec& spec, std::chrono::milliseconds timeout) {
  auto options = c10::make_intrusive<GroupOptions>(spec.settings, timeout);
  options->group_name = spec.name;
  options->global_ranks_in_group.assign(spec.global_ranks.begin(), spec.global_ranks.end());
  return options;
}

// ---- GroupState

GroupState::GroupState(std::shared_ptr<SharedJob> owner, Communicator communicator, const GroupSpec& spec,
                       std::shared_ptr<GroupHooks> hooks)
    : job(std::move(owner)),
      group(std::move(communicator)),
      groups(job, group, spec),
      environment_sums(group, spec.name, !spec.settings.compression),
      share(share_of_group(job, group, spec, std::move(hooks))) {
  if (!spec.settings.inside.empty()) group.use_inside(torch_inside(spec.settings.inside, spec.store));
}

void GroupState::set_stream(TorchCall& call) const {
  call.options.stream = call.stream();
  if (!call.options.stream || !share->may_gate || share->failed_on_stream) return;
  const int device = call.options.stream->device;
  call.is_gated = with_torch_errors([&] { return group.stream_order(device); }) == StreamOrder::gate;
}

void GroupState::apply_timeout() {
  with_torch_errors([&] { share->timeout.apply_change([&](auto changed) { groups.set_timeout(changed); }); });
}

// `held` outlives the posting lock: dropping the last reference to a Work frees tensors, which may need the
// interpreter's lock.
GroupState::WorkList GroupState::unfinished_works() {
  WorkList held;
  WorkList unfinished;
  const std::lock_guard lock(posting);
  for (const auto& weak : in_flight) {
    if (auto work = weak.lock()) held.push_back(std::move(work));
  }
  std::ranges::copy_if(held, std::back_inserter(unfinished), [](const auto& work) { return !work->isCompleted(); });
  in_flight.assign(unfinished.begin(), unfinished.end());
  return unfinished;
}

bool GroupState::finish_operations(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  if (!groups.wait_until_made(deadline)) return false;
  return std::ranges::all_of(unfinished_works(), [&](const auto& work) { return work->wait_for_results(deadline); });
}

// ---- The group of a Backend

Backend::Backend(std::shared_ptr<SharedJob> job, const Communicator& group, const GroupSpec& spec, bool root)
    : c10d::Backend(spec.rank, spec.size),
      root_(root),
      options_(options_of(spec, group.timeout())),
      state_(std::make_shared<GroupState>(std::move(job), group, spec, hooks_)) {}

Backend::~Backend() {
  try {
    shutdown();
  } catch (const std::exception&) {
    // The group had failed, and the operations have reported that.
  }
}

std::shared_ptr<GroupState> Backend::state() const {
  if (auto found = state_if_any()) return found;
  C10_THROW_ERROR(DistBackendError,
                  "qccl: group '" + options_->group_name + "' has no ranks: call reconfigure() first");
}

std::shared_ptr<GroupState> Backend::state_if_any() const {
  const std::lock_guard lock(replacing_);
  return state_;
}

// ---- Settings

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  if (const auto state = state_if_any()) {
    state->share->timeout.set(timeout);
    state->apply_timeout();
  }
}

void Backend::set_compression(const Compression& compression) {
  const auto own = state();
  options_->settings.compression = compression;
  own->environment_sums.end();
  with_torch_errors([&] { own->groups.set_compression(compression); });
}

void Backend::eagerConnectSingleDevice(at::Device device) {
  if (is_served(device)) open_device(state()->group, DeviceStream{std::max<int>(device.index(), 0)});
}

// ---- Groups made from this one, and its end

c10::intrusive_ptr<Backend> Backend::make_job(const GroupSpec& spec) {
  const auto job = JobRegistry::instance().add(std::make_shared<SharedJob>(spec));
  return c10::make_intrusive<Backend>(job, job->communicator(), spec, true);
}

c10::intrusive_ptr<Backend> Backend::make_grown(const Communicator& grown, const GroupSpec& spec) {
  const auto job = JobRegistry::instance().add(std::make_shared<SharedJob>(grown, spec));
  return c10::make_intrusive<Backend>(job, job->communicator(), spec, true);
}

c10::intrusive_ptr<Backend> Backend::make_group(const std::shared_ptr<SharedJob>& job, const GroupSpec& spec) {
  return c10::make_intrusive<Backend>(job, job->subgroup(spec), spec, false);
}

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end()) return nullptr;
  GroupSpec spec{.store = store,
                 .rank = static_cast<int>(own - ranks.begin()),
                 .size = static_cast<int>(ranks.size()),
                 .name = options ? options->group_name : options_->group_name + "/split",
                 .settings = settings_in(options, options_->settings),
                 .may_gate = state()->share->may_gate};
  for (const int rank : ranks) {
    require(rank >= 0 && rank < getSize(), "split", "rank ", rank, " is no rank of a group of ", getSize());
    spec.global_ranks.push_back(
        static_cast<std::int64_t>(options_->global_ranks_in_group.at(static_cast<std::size_t>(rank))));
  }
  if (options) spec.timeout = chosen_timeout(*options);
  return with_torch_errors([&] { return make_group(state()->job, spec); });
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const c10::intrusive_ptr<Options>& options, const int& rank,
                                                 const int& size) {
  GroupSpec spec{.store = store,
                 .rank = rank,
                 .size = size,
                 .name = options ? options->group_name : "merged",
                 .settings = settings_in(options, {}),
                 .message_compression = state()->job->message_compression(),
                 .may_gate = state()->share->may_gate};
  spec.global_ranks.resize(static_cast<std::size_t>(size));
  std::iota(spec.global_ranks.begin(), spec.global_ranks.end(), 0);
  if (options) spec.timeout = chosen_timeout(*options);
  return with_torch_errors([&] { return make_job(spec); });
}

void Backend::abort() {
  const auto ended = state_if_any();
  if (ended == nullptr) return;
  if (root_) ended->job->accept_no_more_groups();
  with_torch_errors([&] { ended->groups.abort("this rank's program aborted the process group"); });
}

void Backend::shutdown() {
  const auto ended = state_if_any();
  if (ended == nullptr) return;
  if (root_) ended->job->accept_no_more_groups();
  const bool finished = ended->finish_operations(kShutdownLimit);
  with_torch_errors([&] {
    if (!finished) {
      ended->groups.abort("this rank's program destroyed the process group while operations were in flight");
    }
    for (const Communicator& group : ended->groups.all()) ended->job->close_group(group);
  });
}

// ---- Calls

// Returns the call's sequence (callback_order.h).
std::string Backend::wait_for_turn(const TorchCall& call, const GroupState& own) const {
  const std::chrono::milliseconds limit = call.options.timeout.value_or(own.share->timeout.now());
  if (auto sequence = CallbackOrder::wait_for_turn(limit)) return *std::move(sequence);
  C10_THROW_ERROR(DistNetworkError, "qccl: rank " + std::to_string(getRank()) + ", group '" + own.group.name() +
                                        "': " + call.title + " in a callback did not begin within " +
                                        std::to_string(limit.count()) +
                                        " ms: callbacks make their calls in the order in which they were added, and " +
                                        "an earlier one has not returned");
}

Backend::WorkPointer Backend::start(TorchCall call) {
  const auto own = state();
  if (auto ended = estimate(call, *own)) return ended;
  if (auto part = coalesce(call, *own)) return part;
  // An extension may have begun or ended.
  own->apply_timeout();
  const bool is_message = call.is_message();
  const bool asynchronous = call.is_asynchronous;
  const bool outlives_wait = asynchronous || call.ends_on_streams();
  const std::string sequence = wait_for_turn(call, *own);
  // Messages from callbacks use the group itself, so they match messages from the program.
  const Communicator group =
      with_torch_errors([&] { return is_message ? own->group : own->groups.of_sequence(sequence); });
  // A callback runs beside the program, so even a call it waits for counts as in flight.
  const bool in_flight = outlives_wait || !sequence.empty();
  if (call.type == c10d::OpType::BARRIER) {
    call.earlier = own->unfinished_works();
    std::erase_if(call.earlier, [](const auto& work) { return c10d::isP2POp(work->retrieveOpType()); });
  } else if (in_flight) {
    own->unfinished_works();  // drops finished works from in_flight
  }

  auto work = c10::make_intrusive<CollectiveWork>(getRank(), std::move(call), own->share);
  if (!is_message) {
    const std::lock_guard order(own->collectives);
    work->post(group, own->sequence.load() + 1);
    ++own->sequence;
  }
  {
    const std::lock_guard lock(own->posting);
    if (is_message) {
      work->post(group, own->messages + 1);
      ++own->messages;
    }
    if (in_flight) own->in_flight.emplace_back(work);
  }
  if (outlives_wait) work->complete_from_pool();
  if (!asynchronous) work->wait();
  return work;
}

void Backend::startCoalescing() {
  const auto own = state();
  const std::lock_guard lock(own->posting);
  if (own->coalescing) {
    C10_THROW_ERROR(DistBackendError, "qccl: calls of group '" + own->group.name() + "' are being coalesced already");
  }
  own->coalescing.emplace();
  own->coalescing->thread = std::this_thread::get_id();
}

// If this thread is coalescing, takes the call over and returns its part; else returns null.
Backend::WorkPointer Backend::coalesce(TorchCall& call, GroupState& own) {
  const std::lock_guard lock(own.posting);
  if (!own.coalescing || own.coalescing->thread != std::this_thread::get_id()) return nullptr;
  auto part = c10::make_intrusive<CoalescedPart>(getRank(), call.type, own.share->next_completion_key());
  call.part_keys = {part->getCompletionKey()};
  own.coalescing->calls.push_back(std::move(call));
  own.coalescing->parts.push_back(part);
  return part;
}

Backend::WorkPointer Backend::endCoalescing() {
  const auto own = state();
  std::optional<GroupState::Coalescing> coalesced;
  {
    const std::lock_guard lock(own->posting);
    coalesced.swap(own->coalescing);
  }
  if (!coalesced) {
    C10_THROW_ERROR(DistBackendError, "qccl: calls of group '" + own->group.name() + "' are not being coalesced");
  }
  if (coalesced->calls.empty()) return estimate({c10d::OpType::COALESCED, "qccl:coalesced"}, *own);
  const WorkPointer work = start(merged(std::move(coalesced->calls)));
  const auto whole = c10::dynamic_intrusive_pointer_cast<CollectiveWork>(work);
  for (const auto& part : coalesced->parts) part->set_whole(whole);
  return work;
}

}  // namespace qccl::torch_binding
