// Functions that end communicators and tell what has become of them.
#include "communicator.h"
#include "groups.h"
#include "results.h"

namespace qccl::nccl {
namespace {

// Calls `ask` with the communicator, and stores what it returns.
template <class Value, class Ask>
ncclResult_t tell(ncclComm_t comm, Value* value, Ask&& ask) {
  return guarded([&] {
    const CommPtr found = find(comm);
    if (value == nullptr) refuse_argument("a null pointer in place of one to the result");
    *value = ask(*found);
    return ncclSuccess;
  });
}

}  // namespace
}  // namespace qccl::nccl

using namespace qccl::nccl;

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return guarded([&] {
    const CommPtr found = find(comm);
    if (!found->is_blocking()) {
      found->close_later();
      return in_progress();
    }
    found->settle();
    static_cast<void>(found->group());
    found->close();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  return guarded([&] {
    if (comm != nullptr) remove(comm)->close();
    return ncclSuccess;
  });
}

// Other ranks learn of it, and fail at once if they wait for this one.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  return guarded([&] {
    if (comm == nullptr) return ncclSuccess;
    const CommPtr removed = remove(comm);
    removed->end("ncclCommAbort()");
    return ncclSuccess;
  });
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  return guarded([&] {
    const CommPtr found = find(comm);
    if (flags != 0) refuse_argument("ncclCommRevoke() with flags " + std::to_string(flags));
    found->revoke("ncclCommRevoke()");
    return ncclSuccess;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return tell(comm, error, [](const ncclComm& found) { return found.state(); });
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  return tell(comm, count, [](const ncclComm& found) { return found.made().size(); });
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  return tell(comm, rank, [](const ncclComm& found) { return found.made().rank(); });
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  return tell(comm, device, [](const ncclComm& found) { return found.device(); });
}
