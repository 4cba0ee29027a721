#include "unique_id.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <string_view>

#include "results.h"

namespace qccl::nccl {
namespace {

constexpr std::string_view kMagic = "QCCL-id1";
constexpr std::size_t kRandomBytes = 16;
constexpr std::size_t kAddressAt = kMagic.size() + kRandomBytes;
constexpr std::size_t kAddressBytes = NCCL_UNIQUE_ID_BYTES - kAddressAt;
// For ranks that still read from the store when this process's first rank has met all of them.
constexpr auto kLinger = std::chrono::seconds(5);

// As many addresses as there is room for.
std::string fitting(const std::string& addresses) {
  if (addresses.size() < kAddressBytes) return addresses;
  return addresses.substr(0, addresses.rfind(',', kAddressBytes - 1));
}

std::string hexadecimal(std::string_view bytes) {
  return fmt::format("{:02x}", fmt::join(std::vector<unsigned char>(bytes.begin(), bytes.end()), ""));
}

// A store whose waits end when a stop is requested.
class StoppableStore final : public Store {
 public:
  StoppableStore(std::shared_ptr<Store> store, std::stop_token stop)
      : store_(std::move(store)), stop_(std::move(stop)) {}

  void set(const std::string& key, const std::string& value) override { store_->set(key, value); }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return store_->add(key, delta); }
  std::optional<std::string> get(const std::string& key, std::chrono::milliseconds timeout) override {
    while (!stop_.stop_requested()) {
      const auto part = std::min(timeout, kStopInterval);
      auto value = store_->get(key, part);
      timeout -= part;
      if (value || timeout <= timeout.zero()) return value;
    }
    throw Error({.kind = ErrorKind::aborted, .message = "QCCL: the communicator was aborted while it was made"});
  }

 private:
  static constexpr std::chrono::milliseconds kStopInterval{100};

  const std::shared_ptr<Store> store_;
  const std::stop_token stop_;
};

// This process's rank as its launcher counts. Logs have it in place of the rank in a communicator, of which a process
// may have several. Nothing without a launcher.
std::optional<int> launched_rank() {
  try {
    // With a master, whatever it is, find_launch() contacts no peer.
    const Launch found = find_launch({.master_address = "localhost", .master_port = 1});
    if (found.world > 1) return found.rank;
  } catch (const Error&) {
    // No launcher's variables, or wrong ones, which communicators do not need.
  }
  return std::nullopt;
}

void leave(const Meeting& meeting) {
  std::unique_lock lock(process().mutex);
  const auto server = process().servers.extract(meeting.key);
  lock.unlock();
  if (!server.empty()) server.mapped()->close(kLinger);
}

}  // namespace

ncclUniqueId make_meeting() {
  auto server = std::make_shared<StoreServer>();
  ncclUniqueId id{};
  std::memcpy(id.internal, kMagic.data(), kMagic.size());
  std::random_device random;
  for (std::size_t at = kMagic.size(); at < kAddressAt; at += sizeof(unsigned int)) {
    const unsigned int word = random();
    std::memcpy(id.internal + at, &word, sizeof(word));
  }
  const std::string address = fitting(server->address());
  std::memcpy(id.internal + kAddressAt, address.data(), address.size());
  const std::lock_guard lock(process().mutex);
  process().servers.emplace(read_meeting(id).key, std::move(server));
  return id;
}

Meeting read_meeting(const ncclUniqueId& id) {
  const std::string_view bytes(id.internal, NCCL_UNIQUE_ID_BYTES);
  const std::string_view address = bytes.substr(kAddressAt);
  if (!bytes.starts_with(kMagic) || address.front() == '\0' || address.back() != '\0') {
    refuse_argument("the unique id is none of QCCL's: all ranks have to load this library in place of NCCL");
  }
  return {.key = hexadecimal(bytes.substr(kMagic.size(), kRandomBytes)), .address = address.data()};
}

Communicator meet(const Meeting& meeting, int world, int rank, const std::stop_token& stop) {
  InitOptions options{.rank = rank, .world = world, .job = "nccl/" + meeting.key, .log = LogOptions()};
  options.log->rank = launched_rank();
  if (world > 1) options.store = std::make_shared<StoppableStore>(connect_store(meeting.address), stop);
  Communicator made = init(options);
  options.store.reset();  // else the server would wait for this client
  leave(meeting);
  return made;
}

}  // namespace qccl::nccl
