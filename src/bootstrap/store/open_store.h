// Opens the store through which the ranks of a job find each other: the program's own, torchrun's,
// or the one that rank 0 serves.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/launcher/environment.h"
#include "bootstrap/store/tcp_store_server.h"
#include "qccl/store.h"

namespace qccl::bootstrap {

struct OpenStore {
  std::unique_ptr<TcpStoreServer> server;  // on the rank that serves it
  std::shared_ptr<Store> store;
  std::string place;    // for messages: "at 10.0.0.1:29500", "in the program's own store"
  std::string address;  // of rank 0, where one is known: Membership::master_address, or what the launcher told

  // Leaves the store and, where it is served here, waits until the others have left too, at most
  // `linger`. They are sure not to need it any more once all are connected; after a failure they
  // may still be reading why.
  void close(Nanoseconds linger);
};

// Starts the server if it is this rank's to serve; it takes the keys of `membership`'s job alone. The client connects
// on first use and works until `deadline`. `own` may be null; `clock` outlives the store.
// ResourceExhausted if MASTER_PORT is taken; InvalidArgument if rank 0 is not where the launcher's word puts it. Where
// ranks learn address and port through the launcher (pmi.h) this is collective, and fails as that does.
Result<OpenStore> open_store(const Membership& membership, std::shared_ptr<Store> own, TimePoint deadline,
                             const Clock& clock);

}  // namespace qccl::bootstrap
