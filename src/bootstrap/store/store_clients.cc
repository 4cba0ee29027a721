#include "bootstrap/store/store_clients.h"

#include <algorithm>
#include <span>

#include "base/bytes.h"
#include "bootstrap/store/byte_reader.h"
#include "os/net/stream.h"

namespace qccl::bootstrap {
namespace {

// Longer than any request of the protocol.
constexpr std::size_t kMaxAnyRequestBytes = kMaxValueBytes + (kMaxKeysPerQuery + 1) * (kMaxKeyBytes + 16);

template <class T>
std::string integer_bytes(T value) {
  ByteWriter writer;
  writer.integer(value);
  return writer.take();
}

}  // namespace

std::string wait_answer(std::uint8_t answer) { return integer_bytes(answer); }

void AnswerQueue::add(std::shared_ptr<const std::string> bytes) {
  if (!bytes->empty()) pieces_.push_back(std::move(bytes));
}

bool AnswerQueue::send(const os::Fd& socket) {
  while (!pieces_.empty()) {
    const auto rest = std::as_bytes(std::span(*pieces_.front())).subspan(sent_);
    const os::IoResult io = os::write_some(socket.get(), rest);
    if (io.lost()) return false;
    if (io.would_block) return true;
    sent_ += io.bytes;
    if (io.bytes < rest.size()) continue;
    pieces_.pop_front();
    sent_ = 0;
  }
  return true;
}

StoreClient& StoreClients::add(Id id, os::Fd socket, std::string address, bool is_own) {
  StoreClient& client = clients_[id];
  client.id = id;
  client.socket = std::move(socket);
  client.address = std::move(address);
  if (is_own) {
    client.standing = StoreClient::Standing::own;
  } else {
    strangers_[client.address].insert(id);
    ++stranger_count_;
  }
  return client;
}

StoreClient* StoreClients::find(Id id) {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : &found->second;
}

void StoreClients::erase(Id id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  forget_stranger(found->second);
  clients_.erase(found);
}

void StoreClients::make_member(StoreClient& client) {
  if (client.standing != StoreClient::Standing::stranger) return;
  forget_stranger(client);
  client.standing = StoreClient::Standing::member;
}

std::optional<StoreClient::Id> StoreClients::stranger_to_drop() const {
  const auto crowd_size = [](const auto& entry) { return entry.second.size(); };
  const auto crowd = std::ranges::max_element(strangers_, {}, crowd_size);
  if (crowd == strangers_.end()) return std::nullopt;
  return *crowd->second.begin();
}

void StoreClients::forget_stranger(const StoreClient& client) {
  const auto found = strangers_.find(client.address);
  if (found == strangers_.end()) return;
  stranger_count_ -= found->second.erase(client.id);
  if (found->second.empty()) strangers_.erase(found);
}

bool StoreService::serve(StoreClient& client) {
  if (!client.answers.send(client.socket) || !answer_requests(client)) return false;
  return !client.answers.empty() || (read(client) && answer_requests(client));
}

// False at end of file, on failure, and if a request does not end.
bool StoreService::read(StoreClient& client) {
  const std::size_t limit = is_limited(client) ? JobKeys::kMaxRequestBytes : kMaxAnyRequestBytes;
  const std::size_t room = limit - std::min(limit, client.received.size());
  if (room == 0) return false;
  const os::IoResult got = os::read_some(client.socket.get(), Bytes(buffer_).first(std::min(room, kReadBytes)));
  client.received.append(reinterpret_cast<const char*>(buffer_.data()), got.bytes);
  return !got.lost();
}

// Answers complete requests until the client does not take an answer at once. False if a request breaks the protocol. A
// stranger's first byte must be right, so that no more than one read from it is ever kept.
bool StoreService::answer_requests(StoreClient& client) {
  std::size_t taken = 0;
  if (client.received.empty()) return true;
  if (!client.is_introduced && Query{static_cast<std::uint8_t>(client.received[0])} != Query::validate) return false;
  while (client.answers.empty()) {
    auto parsed = parse_request(std::string_view(client.received).substr(taken));
    if (!parsed) return false;
    if (parsed->bytes == 0) break;
    taken += parsed->bytes;
    if (!answer(client, parsed->request) || !client.answers.send(client.socket)) return false;
  }
  client.received.erase(0, taken);
  return true;
}

bool StoreService::answer(StoreClient& client, StoreRequest& request) {
  if (client.is_introduced == (request.query == Query::validate)) return false;
  AnswerQueue& answers = client.answers;
  switch (request.query) {
    case Query::validate: client.is_introduced = true; return request.number == kStoreMagic;
    case Query::set: return set(client, request);
    case Query::get: {
      const auto value = state_.get(request.keys[0]);
      if (value == nullptr) return false;
      answers.add(integer_bytes<std::uint64_t>(value->size()));
      answers.add(value);
      return true;
    }
    case Query::add: return add(client, request);
    case Query::check: answers.add(integer_bytes(state_.has_all(request.keys) ? kReady : kNotReady)); return true;
    case Query::wait:
      if (!state_.wait(client.id, request.keys)) {
        answers.add(wait_answer(kReady));
      } else if (refuses_waits_) {
        state_.cancel(client.id);
        answers.add(wait_answer(kServerEnds));
      }
      return true;
    case Query::cancel_wait:
      state_.cancel(client.id);
      answers.add(wait_answer(kWaitCancelled));
      return true;
    case Query::ping: answers.add(integer_bytes(static_cast<std::uint32_t>(request.number))); return true;
  }
  return false;
}

bool StoreService::set(StoreClient& client, StoreRequest& request) {
  const std::string& key = request.keys[0];
  if (is_limited(client)) {
    if (!keys_->may_set(key, request.value)) return false;
    if (state_.has(key)) return true;
  }
  clients_.make_member(client);
  return state_.set(key, std::move(request.value)).ok();
}

bool StoreService::add(StoreClient& client, const StoreRequest& request) {
  const std::string& key = request.keys[0];
  if (is_limited(client) && !keys_->may_add(key, request.number)) return false;
  const bool only_looks = is_limited(client) && request.number == 0 && !state_.has(key);
  const Result<std::int64_t> sum = only_looks ? 0 : state_.add(key, request.number);
  if (sum) client.answers.add(integer_bytes(sum.value()));
  return sum.ok();
}

}  // namespace qccl::bootstrap
