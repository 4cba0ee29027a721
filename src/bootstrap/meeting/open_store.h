// Opens the store through which the ranks of a job find each other: the program's own, torchrun's or rank 0's.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/launcher/launch_identity.h"
#include "bootstrap/store/tcp_store_server.h"
#include "qccl/store.h"
#include "secure/key.h"

namespace qccl::bootstrap {

struct OpenStore {
  std::unique_ptr<TcpStoreServer> server{};  // on the rank that serves the store
  std::shared_ptr<Store> store{};
  std::string location{};  // for messages: "at 10.0.0.1:29500", "in the program's own store"
  std::string address{};   // of rank 0, if known: LaunchIdentity::master_address, or the launcher's

  // Leaves the store. The rank that serves it waits at most `linger` for the others to leave too. Once all ranks are
  // connected they no longer need it; after a failure they may still be reading the reason.
  void close(Nanoseconds linger);
};

// Starts the server if this rank serves the store; the server accepts only the keys of the job of `launch`. The client
// connects on first use and works until `deadline`. `own` may be null; `clock` outlives the store. With `key`, the
// store that rank 0 serves over TCP is for ranks that have it; other stores see nothing of it. ResourceExhausted if
// MASTER_PORT is taken; InvalidArgument if rank 0 is not on the host that the launcher's address names. If ranks learn
// address and port through the launcher (pmi.h), this is collective, and fails like pmi_share().
Result<OpenStore> open_store(const LaunchIdentity& launch, std::shared_ptr<Store> own, TimePoint deadline,
                             const Clock& clock, std::shared_ptr<const secure::Key> key = nullptr);

}  // namespace qccl::bootstrap
