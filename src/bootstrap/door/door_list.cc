#include "bootstrap/door/door_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bootstrap/meeting/card_exchange.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

constexpr std::uint64_t kGeneration = 0;

}  // namespace

DoorList::DoorList(Store& store, const std::string& job, std::shared_ptr<const secure::Key> key, const Clock& clock)
    : keys_(store, door_name(job), 0, clock), seal_(std::move(key), door_name(job), 0) {}

Status DoorList::add(const std::string& door) {
  QCCL_ASSIGN(const std::int64_t number, keys_.add(key("doors"), 1));
  if (number < 1 || number > kMostListedDoors) {
    return Failure(ErrorKind::resource_exhausted, fmt::format("the store lists {} doors already", number - 1));
  }
  Record record{.token = os::random_nonce(), .process = own_process_text(), .card = door};
  record.seal = seal_.make(kGeneration, static_cast<int>(number), record);
  QCCL_TRY(keys_.set(key("door/N", number), encode_record(record)));
  return keys_.await_arrival(key("doors"));
}

Result<std::vector<std::string>> DoorList::read() {
  QCCL_ASSIGN(std::int64_t number, keys_.add(key("doors"), 0));
  std::vector<std::string> doors;
  bool is_refused = false;
  for (number = std::min<std::int64_t>(number, kMostListedDoors); number > 0; --number) {
    QCCL_ASSIGN(const auto value, keys_.get(key("door/N", number), TimePoint{}));
    if (!value) continue;  // its process writes it now, or has ended before
    auto record = decode_record(*value);
    if (!record) continue;
    const Status sealed = seal_.check(kGeneration, static_cast<int>(number), *record);
    if (sealed.ok()) doors.push_back(std::move(record->card));
    is_refused |= !sealed.ok();
  }
  if (!doors.empty() || !is_refused) return doors;
  return Failure(ErrorKind::invalid_argument,
                 "the doors that the store lists are of processes with another key than this one, or only one side has "
                 "a key: give all the same key (QCCL_KEY_FILE, QCCL_KEY or InitOptions::key)");
}

}  // namespace qccl::bootstrap
