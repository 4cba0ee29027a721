// Functions that programs have to find and QCCL does not serve: ncclInvalidUsage, with the reason for
// ncclGetLastError().
#include "groups.h"
#include "results.h"

namespace qccl::nccl {
namespace {

ncclResult_t refuse(const std::string& function, const char* reason) {
  return guarded([&]() -> ncclResult_t { refuse_usage(function + "() is not served: " + reason); });
}

constexpr const char* kWindows = "ranks do not share their memory, so there are no windows";
constexpr const char* kDeviceSide = "kernels do not communicate by themselves; the host moves the data";
constexpr const char* kSuspension = "a communicator keeps no device memory of its own that could be given back";

}  // namespace
}  // namespace qccl::nccl

using namespace qccl::nccl;

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t*) {
  drop_group();
  return refuse("ncclGroupSimulateEnd", "nothing is known of the time of other machines");
}

ncclResult_t ncclCommMemStats(ncclComm_t, int, uint64_t*) { return refuse("ncclCommMemStats", kSuspension); }
ncclResult_t ncclCommSuspend(ncclComm_t, int) { return refuse("ncclCommSuspend", kSuspension); }
ncclResult_t ncclCommResume(ncclComm_t) { return refuse("ncclCommResume", kSuspension); }

ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*, int) {
  return refuse("ncclCommWindowRegister", kWindows);
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return refuse("ncclCommWindowDeregister", kWindows); }
ncclResult_t ncclWinGetUserPtr(ncclComm_t, ncclWindow_t, void**) { return refuse("ncclWinGetUserPtr", kWindows); }
ncclResult_t ncclPutSignal(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned int,
                           ncclComm_t, cudaStream_t) {
  return refuse("ncclPutSignal", kWindows);
}
ncclResult_t ncclSignal(int, int, int, unsigned int, ncclComm_t, cudaStream_t) {
  return refuse("ncclSignal", kWindows);
}
ncclResult_t ncclWaitSignal(int, void*, ncclComm_t, cudaStream_t) { return refuse("ncclWaitSignal", kWindows); }

ncclResult_t ncclDevCommCreate(ncclComm_t, const void*, void*) { return refuse("ncclDevCommCreate", kDeviceSide); }
ncclResult_t ncclDevCommDestroy(ncclComm_t, const void*) { return refuse("ncclDevCommDestroy", kDeviceSide); }
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t, size_t, void**) {
  return refuse("ncclGetLsaMultimemDevicePointer", kDeviceSide);
}
ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t, size_t, int, void**) {
  return refuse("ncclGetPeerDevicePointer", kDeviceSide);
}
