// What ranks read from each other once they are connected, and tools from ranks: frame headers, envelopes, messages of
// the agreement on those that go on, answers about a rank's status. Any bytes are refused, or they are what the encoder
// writes for the decoded value.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "fuzz/fuzz.h"
#include "observe/status_text.h"
#include "wire/frame.h"
#include "wire/member_list.h"

namespace {

using namespace qccl;

// With the right magic and checksum, so that the fields are reached.
void decode_header(ConstBytes bytes) {
  std::array<std::byte, wire::kHeaderBytes> header{}, again{};
  wire::encode_header({}, header.data());
  const std::size_t count = std::min(bytes.size(), header.size() - 8);
  if (count > 0) std::memcpy(header.data() + 4, bytes.data(), count);
  wire::set_frame_number(header.data(), 7);
  const auto decoded = wire::decode_header(header.data());
  if (!decoded) return;
  fuzz::require(decoded.value().payload_bytes <= wire::kPayloadLimit, "a payload is bounded");
  wire::encode_header(decoded.value(), again.data());
  fuzz::require(again == header, "a header has one spelling");
}

void decode_envelope(ConstBytes bytes) {
  const auto decoded = wire::decode_envelope(bytes);
  if (!decoded) return;
  std::array<std::byte, wire::kMostEnvelopeBytes> again{};
  wire::encode_envelope(decoded.value(), again.data());
  fuzz::require(wire::decode_envelope(again).ok(), "an envelope reads back");
}

void decode_status(std::string_view text) {
  RankStatus status;
  if (!internal::decode_status(text, status).ok()) return;
  RankStatus again;
  fuzz::require(internal::decode_status(internal::encode_status(status), again).ok(), "a status reads back");
  std::vector<RankStatus> job{status, again};
  job[1].rank ^= 1;
  fuzz::require(find_hold_up(job).waiting.size() <= job.size(), "no more ranks wait than there are");
  fuzz::require(!to_prometheus(job).empty(), "a status has metrics");
}

void decode_message(ConstBytes payload, std::size_t world) {
  const auto decoded = wire::decode_member_list(payload, world);
  if (!decoded) return;
  fuzz::require(decoded.value().members.size() == world || decoded.value().members.empty(),
                "as many members as the group has");
  fuzz::require(std::ranges::equal(wire::encode_member_list(decoded.value()), payload), "a message has one spelling");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::uint8_t> bytes(data, size);
  decode_header(std::as_bytes(bytes));
  decode_envelope(std::as_bytes(bytes));
  decode_message(std::as_bytes(bytes), 1 + size % 7);
  decode_status({reinterpret_cast<const char*>(data), size});
  return 0;
}
