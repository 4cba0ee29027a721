// Communicator::grow(): the members agree on who comes in, meet the newcomers in a job of its own, and agree on whether
// that worked.
//
// A member that is lost meanwhile fails grow() as it fails any collective. What is decided from is the same on all
// members: numbers from an all_gather, a meeting place from a broadcast. The outcome is decided as in shrink(), so that
// a member that is lost in the last moment leaves none in the grown group while others fall back to the old one.
#include "group/growth/grown_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <system_error>
#include <type_traits>

#include "base/fields.h"
#include "bootstrap/door/door.h"
#include "os/process.h"

namespace qccl::internal {
namespace {

using bootstrap::Door;
using bootstrap::Seat;
using comm::GroupIdentity;

constexpr Nanoseconds kDefaultPatience = std::chrono::seconds(2);
// How long members wait for another newcomer before they tell each other.
constexpr Nanoseconds kLookForDoorEvery = std::chrono::milliseconds(100);
constexpr int kMostMeetings = 3;
constexpr Nanoseconds kShortestMeeting = std::chrono::seconds(1);
constexpr Nanoseconds kLongestMeeting = std::chrono::seconds(60);
// A string field.
constexpr std::size_t kRecordPart = sizeof(std::uint64_t) + bootstrap::kMaxRecordBytes;
constexpr std::size_t kTermsPart = sizeof(std::uint64_t) + Seat::kMaxBytes;

// What each member tells the others.
struct Report {
  std::uint64_t newcomers = 0;  // that have answered at its door
  std::uint64_t is_open = 0;
  std::uint64_t is_late = 0;  // the time for grow() is up; rank 0's counts
};

class Growth {
 public:
  Growth(const std::shared_ptr<CommunicatorState>& state, const GrowOptions& options)
      : state_(state),
        group_(state),
        context_(state->context()),
        door_(context_->door()),
        at_least_(options.at_least),
        at_most_(options.at_most),
        patience_(options.patience ? positive("patience", *options.patience) : kDefaultPatience),
        deadline_(saturating_add(context_->clock().now(), options.timeout
                                                              ? positive("timeout", *options.timeout)
                                                              : context_->settings().options.init_timeout)) {
    if (at_least_ <= at_most_ && at_least_ <= room()) return;
    throw identity().invalid_argument("grow",
                                      fmt::format("GrowOptions::at_least: {} newcomers are more than {}", at_least_,
                                                  at_least_ > at_most_ ? "at_most" : "a world has room for"));
  }

  std::shared_ptr<CommunicatorState> run() {
    for (int meetings = 1;; ++meetings) {
      std::optional<Door::Called> called = gather();
      if (taken_ == 0) return state_;
      const auto meeting = open_meeting();
      auto world = caught([&] { return meet_in(meeting, called); });
      if (all_have_met(meeting, world.ok() ? nullptr : &world.error())) {
        if (called) called->admit();
        return *world;
      }
      if (meetings == kMostMeetings) throw failed(world.ok() ? nullptr : &world.error());
    }
  }

 private:
  const GroupIdentity& identity() const { return state_->group(); }
  TimePoint now() const { return context_->clock().now(); }
  std::size_t room() const { return static_cast<std::size_t>(std::max(0, bootstrap::kMaxWorld - group_.size())); }

  Nanoseconds positive(const char* name, std::chrono::milliseconds time) const {
    if (time.count() > 0) return saturating_nanoseconds(time);
    throw identity().invalid_argument("grow",
                                      fmt::format("GrowOptions::{}: {} ms is not positive", name, time.count()));
  }

  // Calls newcomers until there are enough; sets `first_` and `taken_`. Returns this rank's.
  std::optional<Door::Called> gather() {
    for (;;) {
      std::optional<Door::Called> called;
      if (door_ != nullptr) called.emplace(door_->call(saturating_add(now(), patience_)));
      const std::vector<Report> reports = exchange(called ? called->size() : 0);
      if (choose(reports)) return called;
      called.reset();
      if (door_ != nullptr) door_->wait_for_another(saturating_add(now(), kLookForDoorEvery));
    }
  }

  std::vector<Report> exchange(std::size_t newcomers) {
    const Report own{newcomers, door_ != nullptr, now() >= deadline_};
    std::vector<Report> reports(static_cast<std::size_t>(group_.size()));
    group_.all_gather(&own, reports.data(), sizeof(Report), DataType::uint8);
    return reports;
  }

  // The same on all members. False: there are too few, and time is left.
  bool choose(const std::vector<Report>& reports) {
    if (std::ranges::none_of(reports, [](const Report& each) { return each.is_open != 0; })) {
      throw error(ErrorKind::misuse, "no member is open: start them with InitOptions::open or QCCL_OPEN=on");
    }
    const std::size_t most = std::min(at_most_, room());
    std::size_t taken = 0;
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
      const std::size_t own = std::min<std::size_t>(reports[rank].newcomers, most - taken);
      if (static_cast<int>(rank) == group_.rank()) {
        first_ = group_.size() + static_cast<int>(taken);
        own_ = own;
      }
      taken += own;
    }
    taken_ = taken;
    if (taken >= at_least_) return true;
    if (reports.front().is_late == 0) return false;
    throw error(ErrorKind::deadline_exceeded, fmt::format("{} of {} newcomers have come in time", taken, at_least_));
  }

  // A group of the members for one meeting. It fails on all of them once a member is lost or gives up.
  std::shared_ptr<CommunicatorState> open_meeting() const {
    std::shared_ptr<CommunicatorState> meeting;
    collective([&] { meeting = state_->dup(); });
    meeting->with_builder([](comm::CallBuilder& builder) { builder.set_timeout(2 * kLongestMeeting); });
    return meeting;
  }

  Result<std::shared_ptr<CommunicatorState>> meet_in(const std::shared_ptr<CommunicatorState>& meeting,
                                                     std::optional<Door::Called>& called) {
    Communicator members(meeting);
    QCCL_ASSIGN(bootstrap::MeshListener listener, listen(context_->settings()));
    QCCL_ASSIGN(Seat seat, exchange_records(members, listener.card, called));
    for (std::size_t index = 0; index < own_; ++index) {
      seat.rank = first_ + static_cast<int>(index);
      called->seat(seat);
    }
    seat.rank = group_.rank();
    const auto look = [this, failure = members.when_failed(), &called]() -> Status {
      if (const auto failed = failure.error()) return Failure(*failed);
      if (!called || !called->has_lost_one()) return {};
      return Failure(ErrorKind::peer_lost, fmt::format("a newcomer at the door of rank {} is lost", group_.rank()));
    };
    return meet(seat, context_->settings(), std::move(listener), look, door_);
  }

  // Each part is written by one member and zero on the others, so that the sum has all: the records of all ranks of the
  // grown job, and rank 0's terms, a seat without records.
  Result<Seat> exchange_records(Communicator& members, const bootstrap::AddressCard& card,
                                const std::optional<Door::Called>& called) const {
    const std::size_t world = static_cast<std::size_t>(group_.size()) + taken_;
    std::string parts(world * kRecordPart + kTermsPart, '\0');
    const auto write = [&parts](std::size_t part, const std::string& text) {
      FieldWriter writer;
      writer.string(text, text.size());
      std::ranges::copy(writer.take(), parts.begin() + static_cast<std::ptrdiff_t>(part * kRecordPart));
    };
    const auto read = [&parts](std::size_t part, std::size_t limit) {
      std::string text;
      FieldReader(std::string_view(parts).substr(part * kRecordPart)).string(text, limit);
      return text;
    };
    const bootstrap::Record own{.process = bootstrap::own_process_text(), .card = bootstrap::encode_card(card)};
    write(static_cast<std::size_t>(group_.rank()), bootstrap::encode_record(own));
    for (std::size_t index = 0; index < own_; ++index) {
      write(static_cast<std::size_t>(first_) + index, called->record(index));
    }
    if (group_.rank() == 0) {
      QCCL_ASSIGN(const std::string terms, own_terms());
      write(world, terms);
    }
    collective([&] { members.all_reduce(parts.data(), parts.data(), parts.size(), DataType::uint8); });
    QCCL_ASSIGN(Seat seat, bootstrap::decode_seat(read(world, Seat::kMaxBytes)));
    for (std::size_t rank = 0; rank < world; ++rank) seat.records.push_back(read(rank, bootstrap::kMaxRecordBytes));
    return seat;
  }

  // For rank 0.
  Result<std::string> own_terms() const {
    const auto [compression, timeout] = state_->with_builder(
        [](const comm::CallBuilder& builder) { return std::pair(builder.compression(), builder.timeout()); });
    // A newcomer that vanishes with its seat leaves time for another meeting.
    const Nanoseconds meeting = std::clamp<Nanoseconds>((deadline_ - now()) / 2, kShortestMeeting, kLongestMeeting);
    const Seat seat{.world = group_.size() + static_cast<int>(taken_),
                    .job = fmt::format("{}/grown/{:016x}", context_->settings().job, os::random_nonce()),
                    .compression = compression.to_string(),
                    .timeout_ns = timeout.count(),
                    .meeting_ns = meeting.count()};
    std::string terms = bootstrap::encode_seat(seat);
    if (terms.size() <= Seat::kMaxBytes) return terms;
    return Failure(ErrorKind::invalid_argument, "grow: the job's name is too long");
  }

  // What this rank alone fails in must not keep it from the collectives that follow on all members.
  template <class Call>
  static std::invoke_result_t<Call> caught(const Call& call) {
    try {
      return call();
    } catch (const Error& error) {
      return Failure(error.info());
    } catch (const std::bad_alloc&) {
      return Failure(ErrorKind::resource_exhausted, "no memory");
    } catch (const std::system_error& error) {
      return Failure(ErrorKind::resource_exhausted, std::string("no thread: ") + error.what());
    }
  }
  // A call that finds no memory has not begun, or has lost the group, which the second one finds.
  template <class Call>
  static void collective(const Call& call) {
    try {
      memory_checked(call);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::resource_exhausted) throw;
      memory_checked(call);
    }
  }

  // The same on all members that return. Those that have met agree on who of them lives. A member that has not met ends
  // the meeting and takes no part, as one that is lost. `failure`: this rank's; null if it has met.
  bool all_have_met(const std::shared_ptr<CommunicatorState>& meeting, const ErrorInfo* failure) const {
    const auto await_others = [&] {
      collective([&] { Communicator(meeting).barrier(); });
      return Status();
    };
    const auto give_up = [&] {
      meeting->abort(failure == nullptr ? "a member has no memory" : failure->message);
      return Status();
    };
    if (failure != nullptr || !caught(await_others).ok()) {
      static_cast<void>(caught(give_up));
      return false;
    }
    std::size_t living = 0;
    collective([&] { living = agree_on_members(*meeting, {}).size(); });
    return living == static_cast<std::size_t>(group_.size());
  }

  Error error(ErrorKind kind, const std::string& what) const {
    ErrorInfo info = identity().failure(kind, "grow: " + what);
    info.operation = "grow";
    return Error(std::move(info));
  }

  // `own`: null if it went well here.
  Error failed(const ErrorInfo* own) const {
    const std::string what = own == nullptr ? "another member could not meet the newcomers" : own->message;
    return error(own == nullptr ? ErrorKind::aborted : own->kind,
                 fmt::format("{} meetings have failed; the last: {}", kMostMeetings, what));
  }

  const std::shared_ptr<CommunicatorState> state_;
  Communicator group_;
  const std::shared_ptr<comm::Context> context_;
  const std::shared_ptr<Door> door_;
  const std::size_t at_least_;
  const std::size_t at_most_;
  const Nanoseconds patience_;
  const TimePoint deadline_;
  std::size_t taken_ = 0;  // newcomers of all members
  std::size_t own_ = 0;    // of this rank's, the first ones
  int first_ = 0;          // their first rank
};

}  // namespace

std::shared_ptr<CommunicatorState> grow_group(const std::shared_ptr<CommunicatorState>& state,
                                              const GrowOptions& options) {
  state->refuse_recording("grow()");
  return Growth(state, options).run();
}

}  // namespace qccl::internal
