#include "backend/backend.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "errors.h"
#include "module/log.h"

namespace qccl::torch_binding {
namespace {

// How long a destroyed group waits for operations that its peers do not finish.
constexpr std::chrono::seconds kShutdownLimit{10};

c10::intrusive_ptr<c10d::Backend::Options> options_of(const GroupRequest& request) {
  auto options = c10::make_intrusive<c10d::Backend::Options>("qccl", request.timeout.value_or(kBackendDefaultTimeout));
  options->group_name = request.name;
  options->global_ranks_in_group.assign(request.global_ranks.begin(), request.global_ranks.end());
  return options;
}

std::shared_ptr<WorkShare> make_share(const std::shared_ptr<World>& world, const Communicator& group,
                                      const GroupRequest& request) {
  auto share = std::make_shared<WorkShare>();
  share->order = std::make_shared<CompletionOrder>(group.name());
  share->pool = world->pool();
  share->trace = world->trace();
  share->trace_group = share->trace->add_group(request.name, request.global_ranks);
  share->abort_group = [weak = std::weak_ptr(world), group](const std::string& reason) {
    if (const auto alive = weak.lock()) with_torch_errors([&] { alive->abort_group(group, reason); });
  };
  return share;
}

// The calls move data at the same time, so none may write memory that another uses.
void refuse_collisions(const std::vector<Call>& calls) {
  for (std::size_t later = 1; later < calls.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      if (!calls[earlier].memory.collides_with(calls[later].memory)) continue;
      const auto name = [&](std::size_t i) { return std::to_string(i) + " (" + calls[i].title + ")"; };
      throw_bad_argument("coalesced calls", name(earlier) + " and " + name(later) +
                                                " share memory that one of them writes: make them one after the other");
    }
  }
}

// Merges several calls into one that has the tensors, posts and endings of each.
Call merged(std::vector<Call> calls) {
  refuse_collisions(calls);
  Call whole{c10d::OpType::COALESCED, "qccl:coalesced"};
  const auto all_are = [&calls](auto predicate) { return std::all_of(calls.begin(), calls.end(), predicate); };
  // Messages alone do not count as a collective, and no barrier waits for them.
  if (all_are([](const Call& call) { return call.is_message(); })) whole.type = c10d::OpType::SEND;
  Backend::Tensors outputs;
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  for (Call& call : calls) {
    if (call.later_post) {
      C10_THROW_ERROR(NotImplementedError, std::string(call.title) + " can't be coalesced with other calls");
    }
    for (auto& list : call.outputs) append(outputs, list);
    append(whole.inputs, call.inputs);
    append(whole.posts, call.posts);
    whole.memory.absorb(std::move(call.memory));
    append(whole.endings, call.endings);
    append(whole.earlier, call.earlier);
    whole.timeout = std::max(whole.timeout, call.timeout);
  }
  whole.outputs = {std::move(outputs)};
  return whole;
}

}  // namespace

Backend::Backend(std::shared_ptr<World> world, Communicator group, const GroupRequest& request, bool root)
    : c10d::Backend(request.rank, request.size),
      world_(std::move(world)),
      root_(root),
      keeps_feedback_(request.error_feedback),
      all_gather_compression_(request.all_gather_compression),
      options_(options_of(request)),
      group_(std::move(group)),
      groups_(world_, group_, request),
      share_(make_share(world_, group_, request)) {}

Backend::~Backend() {
  try {
    shutdown();
  } catch (const std::exception&) {
    // The group had failed, and the operations have reported that.
  }
}

// ---- Settings

void Backend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  with_torch_errors([&] { groups_.set_timeout(timeout); });
}

void Backend::set_compression(const Compression& compression) {
  with_torch_errors([&] { groups_.set_compression(compression); });
}

CallOptions Backend::call_options(std::chrono::milliseconds timeout, bool asynchronous) const {
  CallOptions options;
  options.log_name = log_caller();
  options.awaited = !asynchronous;
  if (timeout != c10d::kUnsetTimeout) options.timeout = timeout;
  return options;
}

// ---- Groups made from this one, and its end

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end()) return nullptr;
  GroupRequest request;
  request.store = store;
  request.rank = static_cast<int>(own - ranks.begin());
  request.size = static_cast<int>(ranks.size());
  for (const int rank : ranks) {
    if (rank < 0 || rank >= getSize()) {
      throw_bad_argument("split",
                         "rank " + std::to_string(rank) + " is no rank of a group of " + std::to_string(getSize()));
    }
    request.global_ranks.push_back(
        static_cast<std::int64_t>(options_->global_ranks_in_group.at(static_cast<std::size_t>(rank))));
  }
  request.name = options ? options->group_name : options_->group_name + "/split";
  if (options) request.timeout = options->timeout;
  request.compression = groups_.compression();
  request.error_feedback = keeps_feedback_;
  request.all_gather_compression = all_gather_compression_;
  return with_torch_errors([&]() -> c10::intrusive_ptr<c10d::Backend> {
    return c10::make_intrusive<Backend>(world_, world_->subgroup(request), request, false);
  });
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const c10::intrusive_ptr<Options>& options, const int& rank,
                                                 const int& size) {
  GroupRequest request;
  request.store = store;
  request.rank = rank;
  request.size = size;
  request.global_ranks.resize(static_cast<std::size_t>(size));
  std::iota(request.global_ranks.begin(), request.global_ranks.end(), 0);
  request.name = options ? options->group_name : "merged";
  if (options) request.timeout = options->timeout;
  return with_torch_errors([&]() -> c10::intrusive_ptr<c10d::Backend> {
    auto world = std::make_shared<World>(request);
    WorldRegistry::instance().add(world);
    return c10::make_intrusive<Backend>(world, world->communicator(), request, true);
  });
}

void Backend::abort() {
  if (root_) world_->retire();
  with_torch_errors([&] { groups_.abort("this rank's program aborted the process group"); });
}

void Backend::shutdown() {
  if (root_) world_->retire();
  const bool finished = finish_operations(kShutdownLimit);
  with_torch_errors([&] {
    if (!finished) groups_.abort("this rank's program destroyed the process group while operations were in flight");
    for (const Communicator& group : groups_.all()) world_->close_group(group);
  });
}

bool Backend::finish_operations(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  if (!groups_.wait_until_made(deadline)) return false;
  const WorkList works = unfinished_works();
  return std::all_of(works.begin(), works.end(),
                     [&](const auto& work) { return work->wait_for_results_until(deadline); });
}

// ---- Calls

// `held` outlives the posting lock: dropping the last reference to a Work frees tensors, which may need the
// interpreter's lock.
Backend::WorkList Backend::unfinished_works() {
  WorkList held;
  WorkList unfinished;
  const std::lock_guard lock(posting_);
  for (const auto& weak : in_flight_) {
    if (auto work = weak.lock()) held.push_back(std::move(work));
  }
  std::copy_if(held.begin(), held.end(), std::back_inserter(unfinished),
               [](const auto& work) { return !work->has_results(); });
  in_flight_.assign(unfinished.begin(), unfinished.end());
  return unfinished;
}

Backend::WorkPointer Backend::start(Call call, bool asynchronous) {
  if (auto part = coalesce(call)) return part;
  const bool is_message = call.is_message();
  // Messages from callbacks use the group itself, so they match messages from the program.
  const Communicator group = with_torch_errors([&] { return is_message ? group_ : groups_.for_this_thread(); });
  // A callback runs beside the program, so even a call it waits for counts as in flight.
  const bool in_flight = asynchronous || CompletionOrder::inside_callback();
  if (call.type == c10d::OpType::BARRIER) {
    call.earlier = unfinished_works();
    std::erase_if(call.earlier, [](const auto& work) { return work->is_message(); });
  } else if (in_flight) {
    unfinished_works();  // drops finished works from in_flight_
  }

  auto work = c10::make_intrusive<CollectiveWork>(getRank(), std::move(call), share_);
  if (!is_message) {
    const std::lock_guard order(collectives_);
    work->post(group, sequence_.load() + 1);
    ++sequence_;
  }
  {
    const std::lock_guard lock(posting_);
    if (is_message) {
      work->post(group, messages_ + 1);
      ++messages_;
    }
    if (in_flight) in_flight_.emplace_back(work);
  }
  if (asynchronous) {
    work->complete_from_pool();
  } else {
    work->wait();
  }
  return work;
}

void Backend::startCoalescing() {
  const std::lock_guard lock(posting_);
  if (coalescing_) {
    C10_THROW_ERROR(DistBackendError, "qccl: calls of group '" + group_.name() + "' are being coalesced already");
  }
  coalescing_.emplace();
  coalescing_->thread = std::this_thread::get_id();
}

// If this thread is coalescing, takes the call over and returns its part; else returns null.
Backend::WorkPointer Backend::coalesce(Call& call) {
  const std::lock_guard lock(posting_);
  if (!coalescing_ || coalescing_->thread != std::this_thread::get_id()) return nullptr;
  auto part = c10::make_intrusive<CoalescedPart>(getRank(), call.type);
  coalescing_->calls.push_back(std::move(call));
  coalescing_->parts.push_back(part);
  return part;
}

Backend::WorkPointer Backend::endCoalescing() {
  std::optional<Coalescing> coalesced;
  {
    const std::lock_guard lock(posting_);
    coalesced.swap(coalescing_);
  }
  if (!coalesced) {
    C10_THROW_ERROR(DistBackendError, "qccl: calls of group '" + group_.name() + "' are not being coalesced");
  }
  if (coalesced->calls.empty()) return nullptr;
  const WorkPointer work = start(merged(std::move(coalesced->calls)), true);
  const auto whole = c10::dynamic_intrusive_pointer_cast<CollectiveWork>(work);
  for (const auto& part : coalesced->parts) part->set_whole(whole);
  return work;
}

// ---- Checks

// `whole` has room for `part` of every rank.
void Backend::check_parts(const at::Tensor& whole, const at::Tensor& part, const char* operation) const {
  check_readable(whole, operation);
  check_readable(part, operation);
  check_same_type(whole, part, operation);
  if (whole.numel() == part.numel() * getSize()) return;
  throw_bad_argument(operation, "the larger tensor must have " + std::to_string(getSize()) + " x " +
                                    std::to_string(part.numel()) + " elements, it has " +
                                    std::to_string(whole.numel()));
}

// `list` has one tensor for every rank; this rank's tensor is like `part`.
void Backend::check_list(const Tensors& list, const at::Tensor& part, const char* operation) const {
  if (list.size() != static_cast<std::size_t>(getSize())) {
    throw_bad_argument(operation, "the list must have one tensor for each of " + std::to_string(getSize()) +
                                      " ranks, it has " + std::to_string(list.size()));
  }
  for (const at::Tensor& tensor : list) {
    check_readable(tensor, operation);
    check_same_type(tensor, part, operation);
  }
  const at::Tensor& own = list[static_cast<std::size_t>(getRank())];
  if (own.numel() == part.numel()) return;
  throw_bad_argument(operation, "this rank's tensor of the list must have " + std::to_string(part.numel()) +
                                    " elements, it has " + std::to_string(own.numel()));
}

// The same, but every tensor must be like `part`.
void Backend::check_even_list(const Tensors& list, const at::Tensor& part, const char* operation) const {
  check_list(list, part, operation);
  for (const at::Tensor& tensor : list) {
    if (tensor.numel() == part.numel()) continue;
    throw_bad_argument(operation, "all tensors of the list must have " + std::to_string(part.numel()) +
                                      " elements, one has " + std::to_string(tensor.numel()));
  }
}

}  // namespace qccl::torch_binding
