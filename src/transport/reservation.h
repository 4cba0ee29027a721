// Room for an outgoing frame in a transport's own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/rank.h"

namespace qccl {

// Pacing limits data; control frames (grants, heartbeats, poison) are exempt.
enum class TrafficClass : std::uint8_t { data, control };

// Room for a frame to a peer, to be written in place. Transport::commit() sends it; without that, the transport gets it
// back when the object ends. Moves. Any number at once. Threads: as the transport, which outlives it.
class Reservation {
 public:
  // The part of a transport that takes rooms back.
  class Owner {
   public:
    virtual void give_back(const Reservation& room) = 0;

   protected:
    ~Owner() = default;
  };

  Reservation() = default;
  // `slot` is the owner's.
  Reservation(Owner& owner, WorldRank peer, TrafficClass traffic, Bytes bytes, void* slot = nullptr)
      : owner_(&owner), bytes_(bytes), slot_(slot), peer_(peer), traffic_(traffic) {}
  Reservation(Reservation&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)),
        bytes_(other.bytes_),
        slot_(other.slot_),
        peer_(other.peer_),
        traffic_(other.traffic_) {}
  Reservation& operator=(Reservation&& other) noexcept {
    if (this == &other) return *this;
    give_back();
    owner_ = std::exchange(other.owner_, nullptr);
    bytes_ = other.bytes_;
    slot_ = other.slot_;
    peer_ = other.peer_;
    traffic_ = other.traffic_;
    return *this;
  }
  ~Reservation() { give_back(); }

  // False: there is no room.
  explicit operator bool() const { return owner_ != nullptr; }
  WorldRank peer() const { return peer_; }
  TrafficClass traffic() const { return traffic_; }
  // As many as were reserved.
  Bytes bytes() const { return bytes_; }
  void* slot() const { return slot_; }

  // Copies `payload` behind the first `bytes`; returns the bytes of both.
  std::size_t append(std::size_t bytes, ConstBytes payload) const {
    if (!payload.empty()) std::memcpy(bytes_.data() + bytes, payload.data(), payload.size());
    return bytes + payload.size();
  }
  // The transport does not get it back: it has sent it, or something may write there for ever.
  void forget() { owner_ = nullptr; }

 private:
  void give_back() {
    if (owner_ != nullptr) std::exchange(owner_, nullptr)->give_back(*this);
  }

  Owner* owner_ = nullptr;  // null: there is no room
  Bytes bytes_;
  void* slot_ = nullptr;
  WorldRank peer_;
  TrafficClass traffic_ = TrafficClass::data;
};

}  // namespace qccl
