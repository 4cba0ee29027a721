// What ranks read from strangers before they are connected: Hellos, identities, requests to the store, cards, records,
// outcomes and seats. Any bytes are refused, or they are what the encoder writes for the decoded value.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "bootstrap/door/newcomer.h"
#include "bootstrap/mesh/address_card.h"
#include "bootstrap/mesh/pair_secrets.h"
#include "bootstrap/protocol/formats.h"
#include "bootstrap/store/store_protocol.h"
#include "fuzz/fuzz.h"
#include "wire/frame.h"

namespace {

using namespace qccl;

// With a right checksum, so that the fields are reached.
void decode_hello(std::string_view text) {
  std::array<std::byte, wire::kHelloBytes> bytes{}, again{};
  wire::encode_hello({}, bytes.data());
  const std::size_t count = std::min(text.size(), bytes.size());
  std::memcpy(bytes.data(), text.data(), count);
  const auto hello = wire::decode_hello(bytes.data());
  if (!hello) return;
  wire::encode_hello(hello.value(), again.data());
  fuzz::require(again == bytes, "a Hello has one spelling");
}

void decode_request(std::string_view text) {
  auto parsed = bootstrap::parse_request(text);
  if (!parsed || parsed->bytes == 0) return;
  fuzz::require(parsed->bytes <= text.size(), "a request is in its source");
  fuzz::require(parsed->request.keys.size() <= bootstrap::kMaxKeysPerQuery, "a request has a bounded number of keys");
  fuzz::require(bootstrap::encode_request(parsed->request) == text.substr(0, parsed->bytes), "a request reads back");
}

void decode_identity(std::string_view text) {
  const auto identity = bootstrap::decode_identity(text);
  if (identity) fuzz::require(bootstrap::encode_identity(identity.value()) == text, "an identity has one spelling");
}

void decode_meeting(std::string_view text) {
  if (const auto card = bootstrap::decode_card(text); card.ok()) {
    fuzz::require(card.value().addresses.size() <= bootstrap::kMaxCardAddresses, "a card has few addresses");
    fuzz::require(bootstrap::decode_card(bootstrap::encode_card(card.value())).ok(), "a card reads back");
  }
  if (const auto record = bootstrap::decode_record(text); record.ok()) {
    fuzz::require(record.value().card.size() <= bootstrap::kMaxCardBytes, "a record is small");
    fuzz::require(bootstrap::decode_record(bootstrap::encode_record(record.value())).ok(), "a record reads back");
  }
  if (const auto outcome = bootstrap::decode_outcome(text); outcome.ok()) {
    fuzz::require(bootstrap::decode_outcome(bootstrap::encode_outcome(outcome.value())).ok(), "an outcome reads back");
  }
}

// What a newcomer reads at a door, and what its user says where the doors are.
void decode_door(std::string_view text) {
  if (const auto seat = bootstrap::decode_seat(text); seat.ok()) {
    fuzz::require(bootstrap::encode_seat(seat.value()) == text, "a seat has one spelling");
  }
  if (const auto doors = bootstrap::parse_doors(text, "fuzz"); doors.ok()) {
    fuzz::require(!doors.value().empty(), "there is a door");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  decode_hello(text);
  decode_request(text);
  decode_identity(text);
  decode_meeting(text);
  decode_door(text);
  return 0;
}
