// A communicator of NCCL: a group of QCCL with the device, the operators and the first failure that belong to it.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "process.h"

namespace qccl::nccl {

// An operator of ncclRedOpCreatePreMulSum().
struct PremulSum {
  DataType type;
  double factor = 1;
  const void* scalar = nullptr;  // read when the operation runs, in place of the factor
};

// A group of the members of a revoked communicator, whose own group moves no data any more: new communicators are made
// of it. Thread-safe.
class Heir {
 public:
  // The first call makes it, collective over the members; a stop meanwhile closes `group`. Throws what
  // Communicator::shrink() throws.
  Communicator of(Communicator group, const std::stop_token& stop);
  // The same; throws peer_lost if members are missing, so that ranks are those of `group`.
  Communicator of_all(const Communicator& group, const std::stop_token& stop);
  bool is_made() const;

 private:
  mutable std::mutex mutex_;
  std::optional<Communicator> group_;
};

}  // namespace qccl::nccl

// Thread-safe.
struct ncclComm {
 public:
  ncclComm(int device, bool is_blocking) : device_(device), is_blocking_(is_blocking) {}
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;

  // The current device when the communicator was made; 0 if there was none.
  int device() const { return device_; }
  // What communicators that are made of it without a configuration are as well.
  bool is_blocking() const { return is_blocking_; }

  // Makes the group in this thread; throws what that throws, and aborted once it is ended. A split may give none.
  void make(const qccl::nccl::Making& making);
  // The same in a thread of its own: state() is ncclInProgress until it ends.
  void make_later(qccl::nccl::Making making);
  // Waits until it is made, or closed by close_later(), if that has begun.
  void settle();
  // Requested by end(), which ends the making of communicators of this one's ranks as well.
  std::stop_token ended() const { return end_.get_token(); }
  // The name of the next group that all of its ranks make: the same on all of them, and never used again.
  std::string name_child(const char* call);
  // Keeps a part of a split that no rank has a handle for, until this one ends.
  void keep(qccl::nccl::CommPtr part);

  // The group, until the end. Throws misuse while it is being made, or the failure of its making.
  qccl::Communicator made() const;
  // The same; throws misuse once it is finalized or revoked as well.
  qccl::Communicator group() const;
  // The same for an operation; throws the failure of an earlier one as well.
  qccl::Communicator group_for_operation() const;
  // As group(), but of a revoked communicator too.
  qccl::Communicator group_for_children() const;
  // What they are made of if it is revoked, else null.
  std::shared_ptr<qccl::nccl::Heir> heir() const;

  // A failure of one of its operations; none once it is revoked.
  void fail(const qccl::ErrorInfo& error);
  // ncclSuccess, ncclInProgress or the first failure, where an abort counts until this rank revokes the communicator;
  // ranks that are lost count too, once this rank knows.
  ncclResult_t state() const;
  std::string last_error() const;

  // Ends its operations in all threads with an error, its making, and the waiting of close_later(). Later ones are
  // refused.
  void revoke(const std::string& reason);
  // The same if operations are in flight, then leaves the group. Ends the making of communicators of its ranks too.
  void end(const std::string& reason);
  // Waits for its operations, each of which ends by its deadline, and leaves the group.
  void close();
  // The same in a thread of its own: state() is ncclInProgress until it ends. Throws as group().
  void close_later();

  ncclRedOp_t add(const qccl::nccl::PremulSum& op);
  void remove(ncclRedOp_t op);
  qccl::nccl::PremulSum find(ncclRedOp_t op) const;

 private:
  void run(const qccl::nccl::Making& making);
  void finish(std::optional<qccl::Communicator> made, std::optional<qccl::ErrorInfo> failure);
  void end_closing(const std::string& reason);
  void finish_closing();

  const int device_;
  const bool is_blocking_;
  std::stop_source stop_;  // its making
  std::stop_source end_;
  const std::shared_ptr<qccl::nccl::Heir> heir_ = std::make_shared<qccl::nccl::Heir>();
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable has_finished_;
  std::optional<qccl::Communicator> group_;
  bool is_in_progress_ = true;
  bool is_running_ = false;  // its making, or its end in closer_
  bool is_closed_ = false;
  bool is_revoked_ = false;
  std::optional<qccl::ErrorInfo> failure_;
  int children_ = 0;
  std::vector<qccl::nccl::CommPtr> parts_;
  std::map<int, qccl::nccl::PremulSum> operators_;
  int next_operator_ = ncclAvg + 1;
  std::jthread maker_;  // these last: they end before what they use
  std::jthread closer_;
};

namespace qccl::nccl {

// A handle for the communicator, which is alive until remove().
ncclComm_t add(const CommPtr& comm);
// Both throw invalid_argument for what is no handle, or none any more.
CommPtr find(ncclComm_t handle);
CommPtr remove(ncclComm_t handle);
// The same for what may be none.
void forget(ncclComm_t handle);

}  // namespace qccl::nccl
