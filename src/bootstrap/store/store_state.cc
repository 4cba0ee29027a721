#include "bootstrap/store/store_state.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"

namespace qccl::bootstrap {
namespace {

constexpr std::size_t kEntryCost = 128;  // a map node with two strings

}  // namespace

Status StoreState::set(const std::string& key, std::string value) {
  const auto found = values_.find(key);
  const bool is_new = found == values_.end();
  const std::size_t added = value.size() + (is_new ? key.size() + kEntryCost : 0);
  const std::size_t freed = is_new ? 0 : found->second->size();
  if (bytes_ - freed + added > kMaxBytes) {
    return Failure(ErrorKind::resource_exhausted, "the store is full (" + std::to_string(kMaxBytes) + " bytes)");
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
  if (released_.empty()) return std::nullopt;
  return released_.back();
}

std::optional<StoreState::Waiter> StoreState::any_waiting() const {
  if (lacking_.empty()) return std::nullopt;
  return lacking_.begin()->first;
}

}  // namespace qccl::bootstrap
