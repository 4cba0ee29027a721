#include "bootstrap/store/store_protocol.h"

#include "base/fields.h"

namespace qccl::bootstrap {
namespace {

// False for an unknown query.
bool visit(auto& fields, auto& request) {
  switch (request.query) {
    case Query::validate:
    case Query::ping: fields.template integer<std::uint32_t>(request.number); return true;
    case Query::set:
      fields.one_string(request.keys, kMaxKeyBytes);
      fields.string(request.value, kMaxValueBytes);
      return true;
    case Query::get:
    case Query::await: fields.one_string(request.keys, kMaxKeyBytes); return true;
    case Query::add:
      fields.one_string(request.keys, kMaxKeyBytes);
      fields.integer(request.number);
      return true;
    case Query::check:
    case Query::wait: fields.strings(request.keys, kMaxKeysPerQuery, kMaxKeyBytes); return true;
    case Query::cancel_wait: return true;
    case Query::will:
      fields.strings(request.keys, kMaxWillKeys, kMaxKeyBytes);
      fields.strings(request.values, kMaxWillKeys, kMaxWillValueBytes);
      return true;
  }
  return false;
}

}  // namespace

std::string wire_key(const std::string& key) { return "/" + key; }

std::string encode_request(const StoreRequest& request) {
  FieldWriter writer;
  writer.integer(request.query);
  visit(writer, request);
  return writer.take();
}

Result<ParsedRequest> parse_request(std::string_view source) {
  FieldReader reader(source);
  ParsedRequest parsed;
  reader.integer(parsed.request.query);
  if (reader.incomplete()) return ParsedRequest();
  if (!visit(reader, parsed.request) || reader.malformed()) {
    const int query = static_cast<int>(parsed.request.query);
    return Failure(ErrorKind::corrupt_data, "not a store request (query " + std::to_string(query) + ")");
  }
  if (reader.good()) parsed.bytes = reader.taken();
  return parsed;
}

}  // namespace qccl::bootstrap
