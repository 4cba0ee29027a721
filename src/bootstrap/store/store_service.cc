#include "bootstrap/store/store_service.h"

#include <algorithm>
#include <new>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/text.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

constexpr std::size_t kEntryCost = 128;  // a map node with two strings

// Longer than any request of the protocol.
constexpr std::size_t kMaxAnyRequestBytes = kMaxValueBytes + (kMaxKeysPerQuery + 1) * (kMaxKeyBytes + 16);

template <class T>
std::string integer_bytes(T value) {
  return std::string(as_text(std::as_bytes(std::span(&value, 1))));
}

void add_value(AnswerQueue& answers, const StoreState::Value& value) {
  answers.add(integer_bytes<std::uint64_t>(value->size()));
  answers.add(value);
}

}  // namespace

Status StoreState::set(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const std::size_t added = value.size() + (is_new ? key.size() + kEntryCost : 0);
  const std::size_t freed = is_new ? 0 : found->second->size();
  if (bytes_ - freed + added > limit_) {
    return Failure(ErrorKind::resource_exhausted, "the store is full (" + std::to_string(limit_) + " bytes)");
  }
  values_.insert_or_assign(key, std::make_shared<const std::string>(std::move(value)));
  bytes_ = bytes_ - freed + added;
  if (is_new) release_waiters_of(key);
  return {};
}

StoreState::Value StoreState::get(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : found->second;
}

Result<std::int64_t> StoreState::add(const std::string& key, std::int64_t delta) {
  std::int64_t sum = delta;
  if (const auto old = get(key)) {
    const auto number = parse_number<std::int64_t>(*old);
    if (!number || __builtin_add_overflow(*number, delta, &sum)) {
      return Failure(ErrorKind::corrupt_data, "can't add to store key \"" + key + "\"");
    }
  }
  QCCL_TRY(set(key, std::to_string(sum)));
  return sum;
}

bool StoreState::has_all(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return has(key); });
}

void StoreState::erase(std::string_view prefix) {
  auto each = values_.lower_bound(prefix);
  while (each != values_.end() && each->first.starts_with(prefix)) {
    bytes_ -= each->first.size() + each->second->size() + kEntryCost;
    each = values_.erase(each);
  }
}

bool StoreState::wait(Waiter waiter, const std::vector<std::string>& keys) {
  cancel(waiter);
  released_.reserve(released_.size() + lacking_.size() + 1);
  for (const std::string& key : keys) {
    if (has(key)) continue;
    lacking_[waiter].insert(key);
    waiters_of_[key].insert(waiter);
  }
  return lacking_.contains(waiter);
}

void StoreState::cancel(Waiter waiter) {
  std::erase(released_, waiter);
  const auto found = lacking_.find(waiter);
  if (found == lacking_.end()) return;
  for (const std::string& key : found->second) {
    const auto waiters = waiters_of_.find(key);
    if (waiters == waiters_of_.end()) continue;
    waiters->second.erase(waiter);
    if (waiters->second.empty()) waiters_of_.erase(waiters);
  }
  lacking_.erase(found);
}

void StoreState::release_waiters_of(const std::string& key) {
  const auto found = waiters_of_.find(key);
  if (found == waiters_of_.end()) return;
  for (const Waiter waiter : found->second) {
    const auto lacking = lacking_.find(waiter);
    lacking->second.erase(key);
    if (!lacking->second.empty()) continue;
    lacking_.erase(lacking);
    released_.push_back(waiter);
  }
  waiters_of_.erase(found);
}

std::optional<StoreState::Waiter> StoreState::any_released() const {
  return released_.empty() ? std::nullopt : std::optional(released_.back());
}

std::optional<StoreState::Waiter> StoreState::any_waiting() const {
  return lacking_.empty() ? std::nullopt : std::optional(lacking_.begin()->first);
}

void AnswerQueue::add(std::shared_ptr<const std::string> bytes) {
  if (!bytes->empty()) pieces_.push_back(std::move(bytes));
}

bool AnswerQueue::send(secure::Stream& stream) {
  while (!pieces_.empty()) {
    const auto rest = std::as_bytes(std::span(*pieces_.front())).subspan(sent_);
    const os::IoResult io = stream.write_some(rest);
    if (io.lost()) return false;
    if (io.would_block) return true;
    sent_ += io.bytes;
    if (io.bytes < rest.size()) continue;
    pieces_.pop_front();
    sent_ = 0;
  }
  return true;
}

// The client stops being a stranger.
void StoreService::make_member(StoreClient& client) {
  if (client.standing != StoreClient::Standing::stranger) return;
  strangers_.forget(client.id);
  client.standing = StoreClient::Standing::member;
}

bool StoreService::serve(StoreClient& client) {
  if (client.needs_key) {
    const Result<bool> done = authenticate(client);
    if (!done) refuse(client, done.error());
    if (!done || !done.value()) return done.ok();
  }
  if (!client.answers.send(client.stream) || !answer_requests(client)) return false;
  do {
    if (!client.answers.empty()) return true;
    if (!read(client) || !answer_requests(client)) return false;
  } while (client.stream.has_input());
  return true;
}

// TLS takes memory, so it begins only for a client that begins it.
Result<bool> StoreService::authenticate(StoreClient& client) {
  if (client.stream.tls() == nullptr) {
    std::byte first{};
    const os::IoResult io = os::peek(client.stream.get(), first);
    if (io.lost()) return Failure(ErrorKind::peer_lost, os::describe(io));
    if (!io.ok()) return false;
    if (first == std::byte{static_cast<std::uint8_t>(Query::validate)}) return Failure(ErrorKind::misuse, "has no key");
    if (first != secure::Tls::kFirstByte) return Failure(ErrorKind::corrupt_data, "is no rank");
    const auto find = [this](std::string_view identity) { return secrets_.find(identity); };
    QCCL_ASSIGN(auto tls, secure::Tls::server(client.stream.get(), find));
    client.stream.set_tls(std::move(tls));
  }
  QCCL_ASSIGN(const bool is_done, client.stream.tls()->shake_hands());
  client.needs_key = !is_done;
  if (is_done) make_member(client);
  return is_done;
}

// Tells a rank without a key what is wrong, after reading what it has sent: else closing would discard the answer. Logs
// the first few that are refused, not a thousand of them, and keeps them for a rank 0 that waits in vain.
void StoreService::refuse(StoreClient& client, const ErrorInfo& why) {
  if (why.kind != ErrorKind::misuse) return;
  if (client.stream.tls() == nullptr) {
    client.stream.read_some(buffer_);
    client.answers.add(integer_bytes(kKeysDiffer));
    client.answers.send(client.stream);
  }
  const std::string told = client.address + ": it " + why.message;
  if (refusals_.size() == kMostRefusals || !refusals_.insert(told).second) return;
  log(LogLevel::warning, "the store refused a connection from " + told);
  const std::string key = rules_ == nullptr ? "" : rules_->refusals_key();
  if (key.empty()) return;
  const StoreState::Value before = state_.get(key);
  static_cast<void>(state_.set(key, (before == nullptr ? "" : *before + "; ") + told));
}

// False at end of file, on failure, and if a request does not end.
bool StoreService::read(StoreClient& client) {
  const std::size_t limit = is_limited(client) ? StoreRules::kMaxRequestBytes : kMaxAnyRequestBytes;
  const std::size_t room = limit - std::min(limit, client.received.size());
  if (room == 0) return false;
  const os::IoResult got = client.stream.read_some(Bytes(buffer_).first(std::min(room, kReadBytes)));
  client.received.append(reinterpret_cast<const char*>(buffer_.data()), got.bytes);
  return !got.lost();
}

// Answers complete requests until the client does not take an answer at once. False if a request breaks the protocol. A
// stranger's first byte must be right, so that no more than one read from it is ever kept.
bool StoreService::answer_requests(StoreClient& client) {
  std::size_t taken = 0;
  if (client.received.empty()) return true;
  if (!client.is_introduced && Query{static_cast<std::uint8_t>(client.received[0])} != Query::validate) {
    const bool has_key = std::byte{static_cast<unsigned char>(client.received[0])} == secure::Tls::kFirstByte;
    if (has_key) refuse(client, Failure(ErrorKind::misuse, "has a key, which this job has not").info());
    return false;
  }
  while (client.answers.empty()) {
    auto parsed = parse_request(std::string_view(client.received).substr(taken));
    if (!parsed) return false;
    if (parsed->bytes == 0) break;
    taken += parsed->bytes;
    if (!answer(client, parsed->request) || !client.answers.send(client.stream)) return false;
  }
  client.received.erase(0, taken);
  return true;
}

bool StoreService::answer(StoreClient& client, StoreRequest& request) {
  if (client.is_introduced == (request.query == Query::validate)) return false;
  AnswerQueue& answers = client.answers;
  const bool reads = request.query == Query::get || request.query == Query::wait || request.query == Query::await;
  const auto may_read = [&](const std::string& key) { return rules_->may_read(client.id, key); };
  if (reads && is_limited(client) && !std::ranges::all_of(request.keys, may_read)) return false;
  switch (request.query) {
    case Query::validate: client.is_introduced = true; return request.number == kStoreMagic;
    case Query::set: return set(client, request);
    case Query::will: return keep_will(client, request);
    case Query::get: {
      const auto value = state_.get(request.keys[0]);
      if (value != nullptr) add_value(answers, value);
      return value != nullptr;
    }
    case Query::add: return add(client, request);
    case Query::check: answers.add(integer_bytes(state_.has_all(request.keys) ? kReady : kNotReady)); return true;
    case Query::wait:
    case Query::await: wait(client, request); return true;
    case Query::cancel_wait:
      state_.cancel(client.id);
      answers.add(integer_bytes(kWaitCancelled));
      return true;
    case Query::ping: answers.add(integer_bytes(static_cast<std::uint32_t>(request.number))); return true;
  }
  return false;
}

void StoreService::wait(StoreClient& client, StoreRequest& request) {
  const bool lacks_some = state_.wait(client.id, request.keys);
  client.awaited = request.query == Query::await ? std::move(request.keys[0]) : "";
  if (!lacks_some) answer_wait(client, kReady);
  if (!lacks_some || !refuses_waits_) return;
  state_.cancel(client.id);
  answer_wait(client, kServerEnds);
}

bool StoreService::answer_wait(StoreClient& client, std::uint8_t answer) {
  const bool has_value = answer == kReady && !client.awaited.empty();
  const StoreState::Value value = has_value ? state_.get(client.awaited) : nullptr;
  if (has_value && value == nullptr) return false;
  client.answers.add(integer_bytes(answer));
  if (has_value) add_value(client.answers, value);
  return true;
}

bool StoreService::set(StoreClient& client, StoreRequest& request) {
  const std::string& key = request.keys[0];
  if (is_limited(client)) {
    if (!rules_->may_set(client.id, key, request.value)) return false;
    if (state_.has(key)) return true;
  }
  if (rules_ == nullptr || rules_->trusts_writers()) make_member(client);
  if (!state_.set(key, std::move(request.value)).ok()) return false;
  if (is_limited(client)) rules_->has_set(client.id, key, state_);
  return true;
}

bool StoreService::keep_will(StoreClient& client, StoreRequest& request) {
  if (request.keys.size() != request.values.size()) return false;
  for (std::size_t i = 0; i < request.keys.size(); ++i) {
    if (is_limited(client) && !rules_->may_leave(request.keys[i], request.values[i])) return false;
  }
  client.will = std::move(request);
  return true;
}

// A client that the server itself dropped will reconnect, so its will is not executed.
void StoreService::execute_will(StoreClient& client) {
  const StoreRequest& will = client.will;
  if (will.keys.empty() || !os::peer_closed(client.stream.get())) return;
  try {
    for (std::size_t i = 0; i < will.keys.size(); ++i) {
      if (is_limited(client) && !rules_->may_set(client.id, will.keys[i], will.values[i])) continue;
      if (!state_.has(will.keys[i])) static_cast<void>(state_.set(will.keys[i], will.values[i]));
    }
  } catch (const std::bad_alloc&) {
  }
}

bool StoreService::add(StoreClient& client, const StoreRequest& request) {
  const std::string& key = request.keys[0];
  if (is_limited(client) && !rules_->may_add(client.id, key, request.number)) return false;
  const bool only_looks = request.number == 0 && !state_.has(key);
  const Result<std::int64_t> sum = only_looks ? 0 : state_.add(key, request.number);
  if (!sum) return false;
  client.answers.add(integer_bytes(sum.value()));
  if (is_limited(client) && request.number != 0) rules_->has_added(client.id, key, sum.value());
  return true;
}

}  // namespace qccl::bootstrap
