#include "communicator.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "results.h"

using qccl::Communicator;
using qccl::Error;
using qccl::ErrorInfo;
using qccl::ErrorKind;
using qccl::nccl::Making;
using qccl::nccl::PremulSum;

namespace {

constexpr const char* kAborted = "QCCL: the communicator was aborted while it was made";
constexpr const char* kFinalized = "QCCL: the communicator is finalized";

[[noreturn]] void refuse(const char* what) { throw Error({.kind = ErrorKind::misuse, .message = what}); }

}  // namespace

void ncclComm::run(const Making& making) {
  {
    const std::lock_guard lock(mutex_);
    is_running_ = true;
  }
  const std::stop_callback with_parent(making.stop, [this] { stop_.request_stop(); });
  std::optional<Communicator> made;
  std::optional<ErrorInfo> failure;
  try {
    made = making.make(stop_.get_token());  // if it is stopped already, so that the other ranks are told
  } catch (const Error& error) {
    failure = error.info();
  } catch (const std::exception& error) {
    failure = ErrorInfo{.kind = ErrorKind::resource_exhausted, .message = error.what()};
  }
  if (stop_.stop_requested()) failure = ErrorInfo{.kind = ErrorKind::aborted, .message = kAborted};
  finish(std::move(made), std::move(failure));
}

void ncclComm::finish(std::optional<Communicator> made, std::optional<ErrorInfo> failure) {
  const std::lock_guard lock(mutex_);
  group_ = std::move(made);
  failure_ = std::move(failure);
  is_in_progress_ = is_running_ = false;
  has_finished_.notify_all();
}

void ncclComm::make(const Making& making) {
  run(making);
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

void ncclComm::make_later(Making making) {
  making.comm = nullptr;  // it is this, which would keep itself
  {
    const std::lock_guard lock(mutex_);
    is_running_ = true;
  }
  try {
    maker_ = std::jthread([this, making = std::move(making)] { run(making); });
  } catch (const std::exception& error) {
    finish(std::nullopt, ErrorInfo{.kind = ErrorKind::resource_exhausted, .message = error.what()});
    throw;
  }
}

void ncclComm::settle() {
  std::unique_lock lock(mutex_);
  has_finished_.wait(lock, [this] { return !is_running_; });
}

std::string ncclComm::name_child(const char* call) {
  const Communicator own = group_for_children();
  const std::lock_guard lock(mutex_);
  return own.name() + "/" + call + "#" + std::to_string(++children_);
}

void ncclComm::keep(qccl::nccl::CommPtr part) {
  const std::lock_guard lock(mutex_);
  std::erase_if(parts_, [](const auto& each) { return each->state() != ncclInProgress; });
  parts_.push_back(std::move(part));
}

Communicator ncclComm::made() const {
  const std::lock_guard lock(mutex_);
  if (is_in_progress_) {
    refuse("QCCL: the communicator is still being made: wait until ncclCommGetAsyncError() says so, or ncclGroupEnd()");
  }
  if (!group_ && failure_) throw Error(*failure_);
  if (!group_) refuse(kFinalized);
  return *group_;
}

Communicator ncclComm::group_for_children() const {
  Communicator group = made();
  const std::lock_guard lock(mutex_);
  if (is_closed_) refuse(kFinalized);
  return group;
}

Communicator ncclComm::group() const {
  Communicator group = group_for_children();
  const std::lock_guard lock(mutex_);
  if (is_revoked_) refuse("QCCL: the communicator is revoked: split, shrink, grow, abort or destroy it");
  return group;
}

std::shared_ptr<qccl::nccl::Heir> ncclComm::heir() const {
  const std::lock_guard lock(mutex_);
  return is_revoked_ ? heir_ : nullptr;
}

Communicator ncclComm::group_for_operation() const {
  Communicator group = this->group();
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
  return group;
}

void ncclComm::fail(const ErrorInfo& error) {
  const std::lock_guard lock(mutex_);
  if (!failure_ && !is_revoked_) failure_ = error;
}

ncclResult_t ncclComm::state() const {
  const std::lock_guard lock(mutex_);
  if (is_in_progress_ || is_running_) return ncclInProgress;
  if (failure_) return qccl::nccl::result_of(failure_->kind);
  if (!group_ || is_closed_ || is_revoked_) return ncclSuccess;
  // A rank that has left in good order is missed only by calls.
  const auto lost = group_->failed();
  const bool is_lost = std::ranges::any_of(lost, [](const auto& each) { return each.grade != qccl::LossGrade::left; });
  return is_lost ? ncclRemoteError : ncclSuccess;
}

std::string ncclComm::last_error() const {
  const std::lock_guard lock(mutex_);
  if (failure_) return failure_->message;
  if (!group_ || is_closed_) return "";
  for (const auto& lost : group_->failed()) {
    if (lost.grade != qccl::LossGrade::left) return "QCCL: rank " + std::to_string(lost.rank) + " " + lost.reason;
  }
  return "";
}

void ncclComm::revoke(const std::string& reason) {
  stop_.request_stop();
  end_closing(reason);
  settle();
  std::unique_lock lock(mutex_);
  const auto group = group_;
  const bool ends = group && !is_closed_ && !is_revoked_;
  is_revoked_ = true;
  // The others' revocation came first.
  if (group && failure_ && failure_->kind == ErrorKind::aborted) failure_.reset();
  lock.unlock();
  if (ends) Communicator(*group).abort(reason);
}

void ncclComm::end(const std::string& reason) {
  stop_.request_stop();
  end_.request_stop();
  end_closing(reason);
  settle();
  std::unique_lock lock(mutex_);
  const auto group = group_;
  const bool is_open = group && !is_closed_;
  lock.unlock();
  if (is_open && !group->in_flight().empty()) revoke(reason);
  close();
}

void ncclComm::close() {
  settle();
  std::unique_lock lock(mutex_);
  const auto group = group_;
  const bool ends = group && !is_closed_;
  is_closed_ = true;
  lock.unlock();
  if (ends) Communicator(*group).close();
}

void ncclComm::close_later() {
  Communicator group = this->group();
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) refuse(kFinalized);
    is_running_ = true;
  }
  try {
    closer_ = std::jthread([this, group = std::move(group)]() mutable {
      try {
        group.close();
      } catch (const Error& error) {
        fail(error.info());
      }
      finish_closing();
    });
  } catch (...) {
    finish_closing();
    const std::lock_guard lock(mutex_);
    is_closed_ = false;
    throw;
  }
}

// Ends the operations that closer_ waits for.
void ncclComm::end_closing(const std::string& reason) {
  std::unique_lock lock(mutex_);
  if (!group_ || !is_closed_ || !is_running_) return;
  Communicator group = *group_;
  lock.unlock();
  try {
    group.abort(reason);
  } catch (const Error&) {
    // It has closed meanwhile.
  }
}

void ncclComm::finish_closing() {
  const std::lock_guard lock(mutex_);
  is_running_ = false;
  has_finished_.notify_all();
}

ncclRedOp_t ncclComm::add(const PremulSum& op) {
  const std::lock_guard lock(mutex_);
  operators_.emplace(next_operator_, op);
  return static_cast<ncclRedOp_t>(next_operator_++);
}

void ncclComm::remove(ncclRedOp_t op) {
  const std::lock_guard lock(mutex_);
  if (operators_.erase(op) == 0) qccl::nccl::refuse_argument("ncclRedOpDestroy() of no operator of the communicator");
}

PremulSum ncclComm::find(ncclRedOp_t op) const {
  const std::lock_guard lock(mutex_);
  const auto found = operators_.find(op);
  if (found == operators_.end()) {
    qccl::nccl::refuse_argument("the reduction " + std::to_string(op) + " is no operator of the communicator");
  }
  return found->second;
}

namespace qccl::nccl {

Communicator Heir::of(Communicator group, const std::stop_token& stop) {
  const std::stop_callback on_stop(stop, [&] { group.close(); });
  const std::lock_guard lock(mutex_);
  if (!group_) group_ = group.shrink({.quorum = Quorum::any});
  return *group_;
}

Communicator Heir::of_all(const Communicator& group, const std::stop_token& stop) {
  Communicator heir = of(group, stop);
  if (heir.size() == group.size()) return heir;
  throw Error({.kind = ErrorKind::peer_lost,
               .message = "QCCL: the revoked communicator has lost " + std::to_string(group.size() - heir.size()) +
                          " of its " + std::to_string(group.size()) + " ranks: ncclCommShrink() without them"});
}

bool Heir::is_made() const {
  const std::lock_guard lock(mutex_);
  return group_.has_value();
}

namespace {

constexpr const char* kNoHandle = "the communicator is null, destroyed or none of this process";

}  // namespace

ncclComm_t add(const CommPtr& comm) {
  const std::lock_guard lock(process().mutex);
  process().comms.emplace(comm.get(), comm);
  return comm.get();
}

CommPtr find(ncclComm_t handle) {
  const std::lock_guard lock(process().mutex);
  const auto found = process().comms.find(handle);
  if (found == process().comms.end()) refuse_argument(kNoHandle);
  return found->second;
}

CommPtr remove(ncclComm_t handle) {
  const std::lock_guard lock(process().mutex);
  const auto found = process().comms.extract(handle);
  if (found.empty()) refuse_argument(kNoHandle);
  return std::move(found.mapped());
}

void forget(ncclComm_t handle) {
  std::unique_lock lock(process().mutex);
  const auto found = process().comms.extract(handle);
  lock.unlock();  // its destructor may wait
}

}  // namespace qccl::nccl
