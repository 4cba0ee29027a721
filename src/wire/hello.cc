#include "wire/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/digest/digest.h"

namespace qccl::wire {
namespace {

constexpr char kMagic[8] = {'Q', 'C', 'C', 'L', 'H', 'E', 'L', 'O'};
constexpr std::size_t kReservedOffset = 32;
constexpr std::size_t kChecksumOffset = 56;

std::uint64_t checksum(const std::byte* hello) { return digest(as_text({hello, kChecksumOffset})); }

}  // namespace

void encode_hello(const Hello& hello, std::byte* target) {
  std::memset(target, 0, kHelloBytes);
  std::memcpy(target, kMagic, sizeof(kMagic));
  store(target + 8, hello.version);
  store(target + 12, hello.rank);
  store(target + 16, hello.target);
  store(target + 20, hello.world);
  store(target + 24, hello.job);
  store(target + kChecksumOffset, checksum(target));
}

Result<Hello> decode_hello(const std::byte* source) {
  if (std::memcmp(source, kMagic, sizeof(kMagic)) != 0 ||
      load<std::uint64_t>(source + kChecksumOffset) != checksum(source)) {
    return Failure(ErrorKind::corrupt_data, "not a QCCL handshake");
  }
  if (std::any_of(source + kReservedOffset, source + kChecksumOffset,
                  [](std::byte byte) { return byte != std::byte{}; })) {
    return Failure(ErrorKind::corrupt_data, "handshake has data in reserved bytes: install the same QCCL everywhere");
  }
  return Hello{.version = load<std::uint32_t>(source + 8),
               .rank = load<std::uint32_t>(source + 12),
               .target = load<std::uint32_t>(source + 16),
               .world = load<std::uint32_t>(source + 20),
               .job = load<std::uint64_t>(source + 24)};
}

Status check_hello(const Hello& own, const Hello& got) {
  if (got.version != own.version) {
    return Failure(ErrorKind::unsupported,
                   fmt::format("rank {} speaks wire version {}, this rank {}: install the same QCCL everywhere",
                               got.rank, got.version, own.version));
  }
  if (got.job != own.job) {
    return Failure(ErrorKind::misuse, "a rank of another job connected: two jobs share an address");
  }
  if (got.world != own.world || got.rank >= own.world || got.target != own.rank || got.rank == own.rank) {
    return Failure(
        ErrorKind::misuse,
        fmt::format("rank {} of {} connected to rank {} of {} and meant rank {}: ranks or world sizes differ", got.rank,
                    got.world, own.rank, own.world, got.target));
  }
  return {};
}

}  // namespace qccl::wire
