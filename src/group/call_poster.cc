#include "group/call_poster.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "engine/progress/progress_driver.h"
#include "job/context.h"

namespace qccl::comm {
namespace {

using engine::ArgumentsList;
using engine::CallArguments;
using internal::WorkState;

bool is_collective(const CallArguments& arguments) { return !arguments.message; }

void throw_failure(const WorkState& work) {
  if (work.failure()) throw Error(*work.failure());
}

// Makes `whole` end with the last of the calls.
void join(const ArgumentsList& calls, const std::shared_ptr<WorkState>& whole) {
  whole->expect_parts(calls.size());
  whole->set_recorded(false);
  for (const CallArguments& each : calls) {
    each.work->join(whole);
    each.work->set_recorded(false);
  }
  if (calls.empty()) whole->complete();
}

}  // namespace

CallPoster::CallPoster(std::uint64_t group, std::size_t ranks) : group_(group), limit_(engine::max_in_flight(ranks)) {}

void CallPoster::make_work(CallArguments& arguments, Context& context) {
  try {
    arguments.work = internal::make_work();
  } catch (...) {
    context.call_batch().cancel();
    throw;
  }
}

bool CallPoster::record(CallArguments& arguments, Context& context) {
  if (context.call_batch().work() == nullptr) return false;
  if (arguments.work == nullptr) make_work(arguments, context);
  context.call_batch().record(std::move(arguments));
  return true;
}

int CallPoster::run(CallArguments&& arguments, Context& context) {
  if (record(arguments, context)) return kAnySource;
  const auto work = context.driver().run(std::move(arguments));
  if (work == nullptr) return kAnySource;
  throw_failure(*work);
  return work->source();
}

std::shared_ptr<WorkState> CallPoster::post(CallArguments arguments, const std::shared_ptr<Context>& context) {
  if (arguments.work == nullptr) make_work(arguments, *context);
  auto work = arguments.work;
  work->context = context;
  if (record(arguments, *context)) return work;
  make_room(*context, {&arguments, 1});
  context->driver().post(std::move(arguments));
  return work;
}

int CallPoster::run(ArgumentsList calls, Context& context) {
  if (calls.empty()) return kAnySource;
  for (CallArguments& each : calls) make_work(each, context);
  const auto last = calls.back().work;
  const auto whole = internal::make_work();
  join(calls, whole);
  context.driver().run(post_all_but_last(context, std::move(calls)), *whole);
  throw_failure(*whole);
  return last->source();
}

std::shared_ptr<WorkState> CallPoster::post(ArgumentsList calls, std::shared_ptr<WorkState> whole,
                                            const std::shared_ptr<Context>& context) {
  for (CallArguments& each : calls) {
    if (each.work == nullptr) make_work(each, *context);
  }
  whole->context = context;
  join(calls, whole);
  context->driver().post(post_all_but_last(*context, std::move(calls)));
  return whole;
}

void CallPoster::wait_until_quiet(Context& context) {
  context.driver().with_engine([this](engine::Engine& engine) { engine.groups().notify_when_quiet(group_, quiet_); });
  context.driver().wait(*quiet_, kForever);
}

// Counts the collectives among the calls, at most limit_, as in flight. Blocks while too many are; each has a deadline.
void CallPoster::make_room(Context& context, std::span<CallArguments> calls) {
  const auto collectives = static_cast<std::size_t>(std::ranges::count_if(calls, is_collective));
  const auto has_room = [&] { return in_flight_->load(std::memory_order_relaxed) + collectives <= limit_; };
  if (!has_room()) context.driver().wait_until(has_room, kForever);
  for (CallArguments& arguments : calls) {
    if (is_collective(arguments)) arguments.work->count_in(in_flight_);
  }
}

// Posts a list that is longer than limit_ in windows, and returns the last one, for the caller to post. Makes room for
// each. Messages go first: a peer may need them before it joins the collectives.
ArgumentsList CallPoster::post_all_but_last(Context& context, ArgumentsList calls) {
  if (calls.size() <= limit_) {
    make_room(context, calls);
    return calls;
  }
  const auto collectives = std::stable_partition(calls.begin(), calls.end(), std::not_fn(is_collective));
  const auto window = static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, limit_ / 2));
  auto begin = calls.begin(), end = collectives + std::min(window, calls.end() - collectives);
  while (true) {
    ArgumentsList part(std::make_move_iterator(begin), std::make_move_iterator(end));
    make_room(context, part);
    if (end == calls.end()) return part;
    context.driver().post(std::move(part));
    begin = end;
    end += std::min(window, calls.end() - end);
  }
}

}  // namespace qccl::comm
