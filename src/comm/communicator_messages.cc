// The part of CommunicatorState that deals with messages and with calls in groups.
#include <fmt/format.h>

#include <limits>

#include "comm/communicator_state.h"

namespace qccl::internal {

using engine::Post;
using engine::PostList;

namespace {

// Why there can be no such message, or "".
std::string obstacle(const CommunicatorState::MessageRequest& request, int world) {
  const int lowest = request.incoming ? kAnySource : 0;
  const std::uint64_t limit = std::numeric_limits<std::int64_t>::max() / element_bytes(request.type);
  if (request.peer < lowest || request.peer >= world) {
    return fmt::format("rank {} is no rank of a group of {}", request.peer, world);
  }
  if (request.options.tag < 0) return fmt::format("tag {} is negative", request.options.tag);
  if (request.count > limit) return fmt::format("count {} is over the limit of {}", request.count, limit);
  if (request.count > 0 && (request.incoming ? request.output : request.input) == nullptr) {
    return fmt::format("{} elements with a null buffer", request.count);
  }
  return {};
}

void throw_failure(const WorkState& work) {
  if (work.failure()) throw Error(*work.failure());
}

// One work for all of them.
std::shared_ptr<WorkState> join(const PostList& posts, std::shared_ptr<WorkState> whole) {
  whole->expect_parts(posts.size());
  whole->set_recorded(false);
  for (const Post& post : posts) {
    post.work->join(whole);
    post.work->set_recorded(false);
  }
  if (posts.empty()) whole->complete();
  return whole;
}

}  // namespace

Post CommunicatorState::make_post(const MessageRequest& request, comm::Context& context) {
  if (const std::string problem = obstacle(request, size()); !problem.empty()) {
    throw wrong_argument(context, request.incoming ? "recv" : "send", problem);
  }
  Post post;
  post.group = id_;
  post.call.count = request.count;
  post.call.type = request.type;
  post.message = {.incoming = request.incoming, .peer = request.peer, .tag = request.options.tag};
  post.input = static_cast<const std::byte*>(request.input);
  post.output = static_cast<std::byte*>(request.output);
  post.timeout = request.options.timeout ? Nanoseconds(*request.options.timeout) : timeout_;
  post.work = context.make_work();
  if (context.log()->is_on()) post.log_name = request.options.log_name;
  return post;
}

int CommunicatorState::run(const MessageRequest& request) {
  std::shared_ptr<comm::Context> context;
  Post post = prepare(request, context);
  if (context->recorder().record(post)) return kAnySource;
  const auto work = post.work;
  context->driver().run(std::move(post), *work);
  throw_failure(*work);
  return work->source();
}

std::shared_ptr<WorkState> CommunicatorState::post(const MessageRequest& request) {
  std::shared_ptr<comm::Context> context;
  Post post = prepare(request, context);
  return begin(std::move(post), context);
}

int CommunicatorState::run(const MessageRequest& send, const MessageRequest& receive) {
  std::shared_ptr<comm::Context> context = this->context();
  const MessageRequest requests[] = {send, receive};
  PostList posts = prepare_all<MessageRequest>(requests, context);
  if (posts.empty()) return kAnySource;
  const auto received = posts.back().work;
  const auto whole = join(posts, context->make_work());
  context->driver().run(std::move(posts), *whole);
  throw_failure(*whole);
  return received->source();
}

// ---- several calls as one

// What is left to post: nothing if the calling thread records.
template <class AnyRequest>
PostList CommunicatorState::prepare_all(std::span<const AnyRequest> requests, std::shared_ptr<comm::Context>& context) {
  PostList posts;
  posts.reserve(requests.size());
  for (const AnyRequest& request : requests) {
    Post post = prepare(request, context);
    if (!context->recorder().record(post)) posts.push_back(std::move(post));
  }
  return posts;
}

void CommunicatorState::run(std::span<const Request> requests) {
  std::shared_ptr<comm::Context> context = this->context();
  PostList posts = prepare_all(requests, context);
  const auto whole = join(posts, context->make_work());
  context->driver().run(post_all_but_last(*context, std::move(posts)), *whole);
  throw_failure(*whole);
}

// Recorded ones have no work but their group's.
std::shared_ptr<WorkState> CommunicatorState::post(std::span<const Request> requests) {
  std::shared_ptr<comm::Context> context = this->context();
  const auto recorded = context->recorder().work();
  PostList posts = prepare_all(requests, context);
  if (recorded != nullptr) return recorded;
  auto whole = context->make_work();
  whole->context = context;
  join(posts, whole);
  context->driver().post(post_all_but_last(*context, std::move(posts)));
  return whole;
}

void CommunicatorState::group_start() {
  const auto context = this->context();
  if (context->recorder().start()) return;
  throw Error(
      {.kind = ErrorKind::misuse,
       .message = fmt::format("QCCL rank {}: group_start() twice without group_end() in one thread", context->rank()),
       .rank = context->rank()});
}

std::shared_ptr<WorkState> CommunicatorState::group_end() {
  const auto context = this->context();
  comm::CallBatch::Recording recording = context->recorder().end();
  if (recording.work == nullptr) {
    throw Error({.kind = ErrorKind::misuse,
                 .message = fmt::format("QCCL rank {}: group_end() without group_start() in this thread, or a call in "
                                        "between was refused",
                                        context->rank()),
                 .rank = context->rank()});
  }
  recording.work->context = context;
  const auto whole = join(recording.posts, recording.work);
  context->driver().post(post_all_but_last(*context, std::move(recording.posts)));
  return whole;
}

}  // namespace qccl::internal
