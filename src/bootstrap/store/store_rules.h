// What a store's server lets its clients write. The server's own client may write everything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qccl::bootstrap {

class StoreState;

// Whoever starts the server calls expected_clients() and most_bytes(), the server's thread the rest. Keys are in their
// wire form.
class StoreRules {
 public:
  using Client = std::uint64_t;  // StoreClient::Id

  // Every allowed request is shorter.
  static constexpr std::size_t kMaxRequestBytes = 8 * 1024;

  virtual ~StoreRules() = default;

  // Connections in addition to those of strangers.
  virtual std::size_t expected_clients() const { return 0; }
  // The limit for all keys and values together, in bytes.
  virtual std::size_t most_bytes() const = 0;
  // The key under which the server lists whom it has refused; "" if it keeps no such list.
  virtual std::string refusals_key() const { return ""; }

  // Values, and waiting for them.
  virtual bool may_read(Client /*client*/, std::string_view /*key*/) const { return true; }
  // Adding 0 only reads, and may be refused too.
  virtual bool may_add(Client client, std::string_view key, std::int64_t delta) const = 0;
  virtual bool may_set(Client client, std::string_view key, std::string_view value) const = 0;
  // Whether a will may contain it. When the will is executed, may_set() decides.
  virtual bool may_leave(std::string_view key, std::string_view value) const = 0;
  // A client has done so: what it may do next may depend on it. set: the first value of the key; later ones are ignored
  // without a call.
  virtual void has_added(Client /*client*/, std::string_view /*key*/, std::int64_t /*sum*/) {}
  virtual void has_set(Client /*client*/, std::string_view /*key*/, StoreState& /*state*/) {}
  // Allocates nothing.
  virtual void has_ended(Client /*client*/, StoreState& /*state*/) {}

  // The server's turn: what the rules themselves write. It is called again if std::bad_alloc interrupts it.
  virtual void take_turn(StoreState& /*state*/) {}

  // Whether a client that has stored something stops being a stranger.
  virtual bool trusts_writers() const { return true; }
  // Whether a stranger may stay as long as it likes.
  virtual bool may_stay(Client /*client*/) const { return false; }
};

}  // namespace qccl::bootstrap
