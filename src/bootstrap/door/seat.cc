#include "bootstrap/door/seat.h"

#include <algorithm>

#include "base/text.h"
#include "bootstrap/launcher/membership.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/store/store_protocol.h"

namespace qccl::bootstrap {
namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMaxJobBytes = 512;
constexpr std::size_t kMaxAddressBytes = 80;
constexpr std::size_t kMaxCompressionBytes = 1024;

void visit(auto& fields, auto& version, auto& seat) {
  fields.integer(version);
  fields.integer(seat.rank);
  fields.integer(seat.world);
  fields.string(seat.job, kMaxJobBytes);
  fields.strings(seat.addresses, kMaxCardAddresses, kMaxAddressBytes);
  fields.integer(seat.port);
  fields.string(seat.compression, kMaxCompressionBytes);
  fields.integer(seat.timeout_ns);
  fields.integer(seat.meeting_ns);
}

bool is_sound(const Seat& seat) {
  const auto prints = [](const std::string& text) { return printable(text) == text; };
  return seat.rank >= 0 && seat.rank < seat.world && seat.world <= kMaxWorld && seat.port != 0 &&
         !seat.addresses.empty() && std::ranges::all_of(seat.addresses, prints) && prints(seat.job) &&
         prints(seat.compression) && seat.timeout_ns > 0 && seat.meeting_ns > 0;
}

}  // namespace

std::string encode_seat(const Seat& seat) {
  ByteWriter writer;
  visit(writer, kVersion, seat);
  return writer.take();
}

Result<Seat> decode_seat(std::string_view bytes) {
  ByteReader reader(bytes);
  Seat seat;
  std::uint32_t version = 0;
  visit(reader, version, seat);
  if (reader.finished() && version == kVersion && is_sound(seat)) return seat;
  return Failure(
      ErrorKind::corrupt_data,
      "can't read the seat that a member of the job gave: it has another version of QCCL, or a stranger that "
      "reaches its door wrote it");
}

}  // namespace qccl::bootstrap
