// The buffers of a group that its ranks map: Communicator::allocate().
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "base/log.h"
#include "engine/progress/progress_driver.h"
#include "group/communicator_state.h"

namespace qccl::internal {
namespace {

using comm::CallBuilder;
using comm::GroupIdentity;
using engine::MappedRegion;

constexpr std::size_t kAlignment = 64;

// Null if there is none.
SharedHeap::Memory ordinary_memory(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() - kAlignment) return {};
  const std::size_t size = (bytes + kAlignment) / kAlignment * kAlignment;
  void* const memory = std::aligned_alloc(kAlignment, size);
  if (memory == nullptr) return {};
  std::memset(memory, 0, size);
  return {static_cast<std::byte*>(memory), std::free};
}

// What a rank announces of its block.
struct Offer {
  std::uint64_t bytes;
  std::uint64_t offset;  // in the rank's heap, or one of these
};
constexpr std::uint64_t kUnshared = std::numeric_limits<std::uint64_t>::max();  // ordinary memory
constexpr std::uint64_t kNone = kUnshared - 1;                                  // no memory at all

Error allocate_error(const GroupIdentity& group, ErrorKind kind, const std::string& what) {
  ErrorInfo info = group.failure(kind, "allocate: " + what);
  info.operation = "allocate";
  return Error(std::move(info));
}

Error no_memory(const GroupIdentity& group, std::size_t bytes, std::size_t member) {
  return allocate_error(group, ErrorKind::resource_exhausted,
                        fmt::format("rank {} can't get {} bytes of memory; ask for less, or raise that rank's memory "
                                    "limit",
                                    group.ranks[member], bytes));
}

void warn(const GroupIdentity& group, const std::string& cause) {
  log(LogLevel::warning,
      fmt::format("rank {}: a shared buffer becomes ordinary memory: {}", group.world_rank(), cause));
}

std::vector<Offer> exchange(CommunicatorState& state, const Offer& own) {
  const GroupIdentity& group = state.group();
  std::vector<Offer> offers(group.ranks.size());
  state.run(CollectiveCall{Collective::all_gather, &own, offers.data(), 2, DataType::uint64, CallOptions{}});
  for (std::size_t member = 0; member < offers.size(); ++member) {
    if (offers[member].bytes == own.bytes) continue;
    throw allocate_error(group, ErrorKind::invalid_argument,
                         fmt::format("rank {} asks for {} bytes, rank {} for {}; all ranks must ask for the same",
                                     group.world_rank(), own.bytes, group.ranks[member], offers[member].bytes));
  }
  const auto without = std::ranges::find(offers, kNone, &Offer::offset);
  if (without != offers.end()) {
    throw no_memory(group, own.bytes, static_cast<std::size_t>(without - offers.begin()));
  }
  return offers;
}

// Maps the neighbours' blocks; false if a block of theirs or this rank's own cannot be mapped.
bool map_neighbours(const GroupIdentity& group, SharedHeap& heap, const std::vector<Offer>& offers,
                    MappedRegion& region) {
  if (offers[static_cast<std::size_t>(group.rank)].offset == kUnshared) return false;
  for (std::size_t member = 0; member < offers.size(); ++member) {
    const WorldRank rank(group.ranks[member]);
    if (region.of_member[member] != nullptr || !heap.reaches(rank)) continue;
    if (offers[member].offset == kUnshared) return false;
    auto mapped = heap.map(rank, offers[member].offset, region.bytes);
    if (!mapped.ok()) {
      warn(group, mapped.error().message);
      return false;
    }
    region.of_member[member] = std::move(*mapped);
  }
  return true;
}

}  // namespace

std::shared_ptr<void> CommunicatorState::allocate_mapped(std::size_t bytes) {
  if (group_.size() == 1 || bytes == 0) {
    auto memory = ordinary_memory(bytes);
    if (memory == nullptr) throw no_memory(group_, bytes, 0);
    return memory;
  }
  try {
    SharedHeap* heap = nullptr;
    auto region = std::make_shared<MappedRegion>();
    context()->driver().with_engine([&](engine::Engine& engine) {
      heap = engine.shared_heap();
      region->on_board = engine.groups().has_board(group_.id);
    });
    const bool has_neighbours = heap != nullptr && std::ranges::any_of(group_.ranks, [&](int rank) {
                                  return rank != group_.world_rank() && heap->reaches(WorldRank(rank));
                                });
    Offer offer{bytes, kUnshared};
    SharedHeap::Memory own;
    if (has_neighbours) {
      auto block = heap->allocate(bytes);
      if (block.ok()) {
        offer.offset = block->offset;
        own = std::move(block->memory);
      } else {
        warn(group_, block.error().message);
      }
    }
    if (own == nullptr) own = ordinary_memory(bytes);
    if (own == nullptr) offer.offset = kNone;
    const std::vector<Offer> offers = exchange(*this, offer);
    region->id = with_builder([](CallBuilder& builder) { return builder.regions().next_id(); });
    region->bytes = bytes;
    region->of_member.resize(offers.size());
    region->of_member[static_cast<std::size_t>(group_.rank)] = own;

    // The least of all ranks' values.
    struct Agreement {
      std::uint8_t is_mapped;  // every rank has mapped its neighbours' blocks
      std::uint8_t is_alone;   // no rank has neighbours
    };
    Agreement agreement{!has_neighbours || map_neighbours(group_, *heap, offers, *region), !has_neighbours};
    const CallOptions least{.op = ReduceOp::min};
    run(CollectiveCall{Collective::all_reduce, &agreement, &agreement, sizeof(agreement), DataType::uint8, least});
    if (agreement.is_alone == 1) warn(group_, "no two ranks of the group share memory");
    if (agreement.is_mapped == 0 || agreement.is_alone == 1) return own;
    with_builder([&](CallBuilder& builder) { builder.regions().add(region); });
    return {std::move(region), own.get()};
  } catch (const std::bad_alloc&) {
    abort("no memory left in allocate()");
    throw;
  }
}

}  // namespace qccl::internal
