#include "communicator.h"

#include <algorithm>
#include <exception>

#include "results.h"

using qccl::Communicator;
using qccl::Error;
using qccl::ErrorInfo;
using qccl::ErrorKind;
using qccl::nccl::Making;
using qccl::nccl::PremulSum;

namespace {

[[noreturn]] void refuse(const char* what) { throw Error({.kind = ErrorKind::misuse, .message = what}); }

}  // namespace

void ncclComm::run(const Making& making, const std::stop_token& stop) {
  try {
    auto made = making.make(stop);
    const std::lock_guard lock(mutex_);
    group_ = std::move(made);
    is_in_progress_ = false;
  } catch (const Error& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error.info();
    is_in_progress_ = false;
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    failure_ = ErrorInfo{.kind = ErrorKind::resource_exhausted, .message = error.what()};
    is_in_progress_ = false;
  }
}

void ncclComm::make(const Making& making) {
  run(making, {});
  const std::lock_guard lock(mutex_);
  if (failure_) throw Error(*failure_);
}

void ncclComm::make_later(Making making) {
  making.comm = nullptr;  // it is this, which would keep itself
  maker_ = std::thread([this, making = std::move(making)] { run(making, stop_.get_token()); });
}

void ncclComm::settle() {
  if (maker_.joinable()) maker_.join();
}

Communicator ncclComm::group_to_shrink() const {
  const std::lock_guard lock(mutex_);
  if (is_in_progress_) {
    refuse("QCCL: the communicator is still being made: wait until ncclCommGetAsyncError() says so, or ncclGroupEnd()");
  }
  if (!group_ && failure_) throw Error(*failure_);
  if (!group_ || is_closed_) refuse("QCCL: the communicator is finalized");
  return *group_;
}

Communicator ncclComm::group() const {
  Communicator group = group_to_shrink();
  const std::lock_guard lock(mutex_);
  if (is_revoked_) refuse("QCCL: the communicator is revoked: only ncclCommShrink() and ncclCommDestroy() take it");
  return group;
}

void ncclComm::fail(const ErrorInfo& error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error;
}

ncclResult_t ncclComm::state() const {
  const std::lock_guard lock(mutex_);
  if (is_in_progress_) return ncclInProgress;
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
  settle();
  std::unique_lock lock(mutex_);
  const auto group = group_;
  const bool ends = group && !is_closed_ && !is_revoked_;
  is_revoked_ = true;
  lock.unlock();
  if (ends) Communicator(*group).abort(reason);
}

void ncclComm::end(const std::string& reason) {
  stop_.request_stop();
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

}  // namespace qccl::nccl
