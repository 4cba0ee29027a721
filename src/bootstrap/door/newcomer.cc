#include "bootstrap/door/newcomer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "bootstrap/meeting/card_exchange.h"
#include "os/net/socket.h"
#include "os/process.h"

namespace qccl::bootstrap {
namespace {

// An address that does not answer gives way to the next.
constexpr Nanoseconds kConnectLimit = std::chrono::seconds(3);
// So does a door.
constexpr Nanoseconds kAnswerLimit = std::chrono::seconds(5);
constexpr Nanoseconds kAskEvery = std::chrono::seconds(1);
constexpr Nanoseconds kRetryDelay = std::chrono::milliseconds(100);
constexpr const char* kOtherJob = " (perhaps it is the door of a job of another name)";
constexpr Nanoseconds kReadAgain = std::chrono::milliseconds(500);  // the store's list

std::optional<DoorAddress> parse_door(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const auto port = parse_number<std::uint16_t>(text.substr(colon + 1));
  if (host.empty() || !port || *port == 0) return std::nullopt;
  return DoorAddress{std::string(host), *port};
}

}  // namespace

Result<std::vector<DoorAddress>> parse_doors(std::string_view text, const std::string& source) {
  std::vector<DoorAddress> doors;
  for (const std::string_view part : split(text, ',')) {
    auto door = parse_door(part);
    if (!door) {
      return Failure(ErrorKind::invalid_argument,
                     fmt::format("{}: \"{}\" is no HOST:PORT; give what Communicator::door() or StoreServer::address() "
                                 "says, several separated by commas",
                                 source, printable(part)));
    }
    doors.push_back(std::move(*door));
  }
  return doors;
}

DoorSource fixed_doors(std::vector<DoorAddress> doors) {
  return {.find = [doors = std::move(doors)] { return Result<std::vector<DoorAddress>>(doors); }};
}

Newcomer::Newcomer(DoorSource source, const std::string& job, std::shared_ptr<const secure::Key> key,
                   TimePoint deadline, const Clock& clock)
    : source_(std::move(source)),
      name_(door_name(job)),
      secrets_(std::move(key), name_, 0),
      begin_(clock.now()),
      deadline_(deadline),
      clock_(clock) {}

Status Newcomer::try_door(const DoorAddress& door) {
  const TimePoint until = std::min(deadline_, saturating_add(clock_.now(), kConnectLimit));
  QCCL_TRY(os::connect_tcp_once(door.host, door.port, until, clock_));
  store_ = std::make_unique<TcpStore>(TcpStoreOptions{.host = door.host,
                                                      .port = door.port,
                                                      .deadline = deadline_,
                                                      .clock = &clock_,
                                                      .secrets = secrets_,
                                                      .connect_by = saturating_add(clock_.now(), kConnectLimit),
                                                      .retries = false,
                                                      .answer_limit = kAnswerLimit});
  keys_.emplace(*store_, name_, 0, clock_);
  auto ticket = keys_->add(key("tickets"), 1);
  if (!ticket) {
    Failure failure = ticket.failure();
    if (failure.info().kind == ErrorKind::peer_lost) failure.info().message += kOtherJob;
    return failure;
  }
  ticket_ = *ticket;
  round_ = 1;
  return {};
}

// Begins with the first door again. A store that does not answer has doors that are known, or starts later.
Status Newcomer::look_for_doors() {
  for (bool is_first = doors_.empty();; is_first = false) {
    const Nanoseconds left = deadline_ - clock_.now();
    if (left <= Nanoseconds::zero()) return out_of_time();
    if (!is_first) os::pause(std::min(source_.is_list ? kReadAgain : kRetryDelay, left));
    auto found = source_.find();
    if (!found && found.error().kind == ErrorKind::invalid_argument) return Failure(found.error());
    no_doors_ = found ? "the store lists no doors" : found.error().message;
    if (found && *found != doors_) {
      doors_ = std::move(*found);
      failures_.assign(doors_.size(), "");
    }
    next_ = 0;
    if (!doors_.empty()) return {};
  }
}

// Tries every door in turn until one lets this process wait.
Status Newcomer::knock() {
  for (;; ++next_) {
    if (next_ >= doors_.size()) QCCL_TRY(look_for_doors());
    Status tried = try_door(doors_[next_]);
    failures_[next_] = tried.ok() ? "" : tried.error().message;
    if (tried.ok()) return {};
    keys_.reset();
    store_.reset();
    if (tried.error().kind == ErrorKind::invalid_argument && !source_.is_list) return tried;
    if (clock_.now() >= deadline_) return out_of_time();
  }
}

// Other addresses with the same port are most likely the same member's.
void Newcomer::leave_door(const std::string& why) {
  failures_[next_] = why;
  keys_.reset();
  store_.reset();
  const std::uint16_t left = doors_[next_].port;
  while (next_ < doors_.size() && doors_[next_].port == left) ++next_;
}

// Waits for what the member writes. The end of each get() has an answer, so a door without one is noticed.
Result<std::optional<std::string>> Newcomer::await(const std::string& name) {
  for (;;) {
    const TimePoint until = std::min(deadline_, saturating_add(clock_.now(), kAskEvery));
    QCCL_ASSIGN(auto value, keys_->get(name, until));
    if (value || clock_.now() >= deadline_) return value;
  }
}

// Waits until the door's member has called and decided; nothing if it takes nobody this time.
Result<std::optional<Seat>> Newcomer::take_turn(const std::string& card) {
  QCCL_ASSIGN(const auto call, await(key("T/C/call", ticket_, round_)));
  if (!call) return out_of_time();
  const Record own{.process = own_process_text(), .card = card};
  QCCL_TRY(keys_->set(key("T/C/here", ticket_, round_), encode_record(own)));
  QCCL_ASSIGN(const auto answer, await(key("T/C/seat", ticket_, round_)));
  if (!answer) return out_of_time();
  if (!answer->empty()) {
    QCCL_ASSIGN(Seat seat, decode_seat(*answer));
    return std::optional<Seat>(std::move(seat));
  }
  ++round_;
  return std::optional<Seat>();
}

Result<Seat> Newcomer::wait_for_seat(const MakeCard& make_card) {
  for (;;) {
    if (store_ == nullptr) QCCL_TRY(knock());
    QCCL_ASSIGN(const std::string card, make_card(doors_[next_].host));
    auto seat = take_turn(card);
    if (seat && *seat) return std::move(**seat);
    if (seat) continue;
    if (clock_.now() >= deadline_) return seat.failure();
    leave_door(seat.error().message);  // the member has ended, or is no member of ours
  }
}

Status Newcomer::look() {
  QCCL_ASSIGN(const auto answer, keys_->get(key("T/C/in", ticket_, round_), TimePoint{}));
  const bool goes_on = !answer || !answer->empty();
  return goes_on ? Status() : Failure(ErrorKind::aborted, "the members have ended the meeting");
}

bool Newcomer::settle(bool well) {
  auto answer = await(key("T/C/in", ticket_, round_));
  const bool is_in = answer && *answer && !(*answer)->empty();
  if (is_in && well) return true;
  ++round_;
  if (!answer) leave_door(answer.error().message);
  if (is_in) leave_door("the members have met without this process");
  return false;
}

Failure Newcomer::out_of_time() const {
  std::vector<std::string> reasons;
  if (doors_.empty()) reasons.push_back(printable(no_doors_));
  for (std::size_t i = 0; i < doors_.size(); ++i) {
    const std::string& why = failures_[i];
    if (why.empty() && i != next_) continue;
    reasons.push_back(os::address_text(doors_[i].host, doors_[i].port) + ": " +
                      (why.empty() ? "waited there, but its members did not call grow()" : printable(why)));
  }
  return Failure(ErrorKind::deadline_exceeded,
                 fmt::format("no job took this process in within {}: {}", seconds_text(clock_.now() - begin_),
                             fmt::join(reasons, "; ")));
}

}  // namespace qccl::bootstrap
