#include "comm/shared_regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "base/log.h"
#include "comm/communicator_state.h"

namespace qccl::internal {
namespace {

using engine::MappedRegion;

constexpr std::size_t kAlignment = 64;

// Null if it is not to be had.
SharedHeap::Memory ordinary_memory(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() - kAlignment) return {};
  const std::size_t size = (bytes + kAlignment) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) return {};
  std::memset(memory, 0, size);
  return {static_cast<std::byte*>(memory), std::free};
}

// What a rank tells the others of its block.
struct Offer {
  std::uint64_t bytes;
  std::uint64_t offset;  // in its heap, or one of these
};
constexpr std::uint64_t kUnshared = std::numeric_limits<std::uint64_t>::max();  // memory that nobody can map
constexpr std::uint64_t kNone = kUnshared - 1;                                  // not even that

Error no_memory(const CommunicatorState& group, std::size_t bytes, std::size_t member) {
  return Error({.kind = ErrorKind::resource_exhausted,
                .message = fmt::format("QCCL group '{}': allocate: rank {} can't get {} bytes of memory; ask for less, "
                                       "or raise that rank's memory limit",
                                       group.name(), group.ranks()[member], bytes),
                .operation = "allocate"});
}

void warn(const comm::Context& context, const std::string& cause) {
  log(LogLevel::warning, fmt::format("rank {}: a shared buffer becomes ordinary memory: {}", context.rank(), cause));
}

// What a group can share.
struct Reach {
  SharedHeap* heap = nullptr;  // null: no member's memory but its own
  bool on_board = false;
};

Reach reach_of(comm::Context& context, const CommunicatorState& group) {
  Reach reach;
  context.driver().with_engine([&](engine::Engine& engine) {
    reach = {engine.heap(), engine.groups().has_board(group.id())};
  });
  const auto is_reached = [&](int rank) { return rank != context.rank() && reach.heap->reaches(WorldRank(rank)); };
  const bool has_neighbours =
      reach.heap != nullptr && std::any_of(group.ranks().begin(), group.ranks().end(), is_reached);
  if (!has_neighbours) reach.heap = nullptr;
  return reach;
}

// A block of the heap or, if there is none, ordinary memory. Null if that is not to be had either.
SharedHeap::Memory allocate_block(comm::Context& context, SharedHeap* heap, Offer& offer) {
  if (heap != nullptr) {
    auto block = heap->allocate(offer.bytes);
    if (block.ok()) {
      offer.offset = block->offset;
      return std::move(block->memory);
    }
    warn(context, block.error().message);
  }
  auto memory = ordinary_memory(offer.bytes);
  offer.offset = memory == nullptr ? kNone : kUnshared;
  return memory;
}

std::vector<Offer> exchange(CommunicatorState& group, const Offer& own) {
  std::vector<Offer> offers(static_cast<std::size_t>(group.size()));
  group.run(comm::CollectiveCall{Collective::all_gather, &own, offers.data(), 2, DataType::uint64, CallOptions{}});
  for (std::size_t member = 0; member < offers.size(); ++member) {
    if (offers[member].bytes == own.bytes) continue;
    throw Error(
        {.kind = ErrorKind::invalid_argument,
         .message = fmt::format("QCCL group '{}': allocate: rank {} asks for {} bytes, rank {} for {}; all ranks "
                                "must ask for the same",
                                group.name(), group.ranks()[static_cast<std::size_t>(group.rank())], own.bytes,
                                group.ranks()[member], offers[member].bytes),
         .operation = "allocate"});
  }
  for (std::size_t member = 0; member < offers.size(); ++member) {
    if (offers[member].offset == kNone) throw no_memory(group, own.bytes, member);
  }
  return offers;
}

// Maps what neighbours offer; false if one has nothing to map or can't be mapped, or this rank has nothing itself.
bool map_neighbours(comm::Context& context, const CommunicatorState& group, SharedHeap* heap,
                    const std::vector<Offer>& offers, MappedRegion& region) {
  const bool is_shared = offers[static_cast<std::size_t>(group.rank())].offset != kUnshared;
  if (heap != nullptr && !is_shared) return false;
  for (std::size_t member = 0; heap != nullptr && member < offers.size(); ++member) {
    const WorldRank rank(group.ranks()[member]);
    if (region.of_member[member] != nullptr || !heap->reaches(rank)) continue;
    if (offers[member].offset == kUnshared) return false;
    auto mapped = heap->map(rank, offers[member].offset, region.bytes);
    if (!mapped.ok()) {
      warn(context, mapped.error().message);
      return false;
    }
    region.of_member[member] = std::move(*mapped);
  }
  return true;
}

// Over all ranks' values.
struct RegionAgreement {
  std::uint8_t mapped;  // all it could
  std::uint8_t alone;   // with nobody to share with
};

RegionAgreement least(CommunicatorState& group, RegionAgreement own) {
  CallOptions minimum;
  minimum.op = ReduceOp::min;
  group.run(comm::CollectiveCall{Collective::all_reduce, &own, &own, sizeof(own), DataType::uint8, minimum});
  return own;
}

}  // namespace

std::shared_ptr<void> SharedRegions::share(CommunicatorState& group, std::size_t bytes) {
  const auto context = group.context();
  const Reach reach = reach_of(*context, group);
  Offer offer{bytes, kNone};
  const SharedHeap::Memory own = allocate_block(*context, reach.heap, offer);
  const std::vector<Offer> offers = exchange(group, offer);
  auto region = std::make_shared<MappedRegion>();
  region->id = ++made_;
  region->bytes = bytes;
  region->on_board = reach.on_board;
  region->of_member.resize(offers.size());
  region->of_member[static_cast<std::size_t>(group.rank())] = own;
  const bool mapped = map_neighbours(*context, group, reach.heap, offers, *region);
  const bool is_alone = reach.heap == nullptr;
  const RegionAgreement all = least(group, {static_cast<std::uint8_t>(mapped), static_cast<std::uint8_t>(is_alone)});
  if (all.alone == 1) warn(*context, "no two ranks of the group share memory");
  if (all.mapped == 0 || all.alone == 1) return own;
  const std::lock_guard lock(mutex_);
  regions_.push_back(region);
  return {std::move(region), own.get()};
}

std::shared_ptr<void> SharedRegions::allocate(CommunicatorState& group, std::size_t bytes) {
  if (group.size() == 1 || bytes == 0) {
    auto memory = ordinary_memory(bytes);
    if (memory == nullptr) throw no_memory(group, bytes, 0);
    return memory;
  }
  try {
    return share(group, bytes);
  } catch (const std::bad_alloc&) {
    group.abort("no memory left in allocate()");
    throw;
  }
}

std::optional<SharedRegions::Place> SharedRegions::find(const void* begin, std::size_t bytes, int rank) {
  const std::lock_guard lock(mutex_);
  if (regions_.empty()) return std::nullopt;
  std::erase_if(regions_, [](const auto& region) { return region.expired(); });
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  for (const auto& candidate : regions_) {
    auto region = candidate.lock();
    if (region == nullptr || bytes > region->bytes) continue;
    const auto base = reinterpret_cast<std::uintptr_t>(region->of_member[static_cast<std::size_t>(rank)].get());
    if (address < base || address - base > region->bytes - bytes) continue;
    return Place{std::move(region), address - base};
  }
  return std::nullopt;
}

}  // namespace qccl::internal
