#include "plan/choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/plan.h"

namespace qccl::plan {
namespace {

// Largest operation that goes one-shot. Two ranks: what fits the eager limit, measured as the
// crossing on loopback TCP; more ranks send to everybody, so their share shrinks.
std::uint64_t one_shot_limit(int world) { return 2 * 64 * 1024 / static_cast<std::uint64_t>(world); }

enum class Ground : std::uint8_t { alone, direct, two_ranks, compressed, small, large };

Ground ground(Collective collective, std::uint64_t bytes, int world, bool compressed) {
  const auto all = algorithms_of(collective);
  if (world == 1) return Ground::alone;
  if (std::find(all.begin(), all.end(), Algorithm::sra) == all.end()) return Ground::direct;
  // Between two ranks only all_reduce has anything to share out.
  if (collective != Collective::all_reduce && world == 2) return Ground::two_ranks;
  if (compressed) return Ground::compressed;
  return bytes <= one_shot_limit(world) ? Ground::small : Ground::large;
}

}  // namespace

Algorithm choose(Collective collective, std::uint64_t bytes, int world, bool compressed) {
  const Ground why = ground(collective, bytes, world, compressed);
  return why == Ground::compressed || why == Ground::large ? Algorithm::sra : Algorithm::one_shot;
}

std::string reason(Collective collective, std::uint64_t bytes, int world, bool compressed) {
  const Ground why = ground(collective, bytes, world, compressed);
  switch (why) {
    case Ground::alone: return "a single rank";
    case Ground::direct: return "what a rank needs of another goes there directly";
    case Ground::two_ranks: return "two ranks have nothing to share out";
    case Ground::compressed: return "compressed: an element is encoded twice at most, whatever the world";
    case Ground::small:
    case Ground::large: break;
  }
  return fmt::format("{} {} bytes, up to which {} ranks send everything to everybody",
                     why == Ground::small ? "not above" : "above", one_shot_limit(world), world);
}

}  // namespace qccl::plan
