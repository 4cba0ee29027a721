// Communicator::grow(): the members agree on who comes in, meet the newcomers in a job of its own, and agree on whether
// that worked.
//
// A member that is lost meanwhile fails grow() as it fails any collective. What is decided from is the same on all
// members: numbers from an all_gather, a meeting place from a broadcast. The outcome is decided as in shrink(), so that
// a member that is lost in the last moment leaves none in the grown group while others fall back to the old one.
#include "group/growth/grown_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <optional>
#include <system_error>
#include <type_traits>

#include "base/fields.h"
#include "bootstrap/door/door.h"
#include "group/growth/meeting_watch.h"
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
      auto world = with_memory([&] { return meet_with(called); });
      if (all_have_met(world.ok())) {
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

  Result<std::shared_ptr<CommunicatorState>> meet_with(std::optional<Door::Called>& called) {
    std::optional<MeetingPlace> place;
    Seat seat = announce(place);
    for (std::size_t index = 0; index < own_; ++index) {
      seat.rank = first_ + static_cast<int>(index);
      called->seat(seat);
    }
    seat.rank = group_.rank();
    const MeetingWatch watch(seat, context_->settings(), [this, &called] { return find_lost(called); });
    return meet(seat, context_->settings(), door_, place ? &*place : nullptr);
  }

  // Looks for lost members, and for lost newcomers at this rank's door.
  std::optional<std::string> find_lost(const std::optional<Door::Called>& called) const {
    const std::vector<LostRank> members = group_.failed();
    if (!members.empty()) return fmt::format("rank {} of the group that grows is lost", members.front().rank);
    if (!called || !called->has_lost_one()) return std::nullopt;
    return fmt::format("a newcomer at the door of rank {} is lost", group_.rank());
  }

  // What fails here for lack of memory must not keep this rank from the collective that follows on all members.
  template <class Call>
  static std::invoke_result_t<Call> with_memory(const Call& call) {
    try {
      return call();
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

  // Rank 0 opens the place and tells the others.
  Seat announce(std::optional<MeetingPlace>& place) {
    std::array<char, sizeof(std::uint64_t) + Seat::kMaxBytes> bytes{};  // a string field
    std::optional<Failure> failure;
    if (group_.rank() == 0) {
      auto opened = with_memory([&] { return open_place(place); });
      if (opened) std::ranges::copy(*opened, bytes.begin());
      if (!opened) failure = opened.failure();
    }
    collective([&] { group_.broadcast(bytes.data(), bytes.size(), DataType::uint8); });
    if (failure) throw Error(std::move(failure->info()));
    std::string seat;
    FieldReader(std::string_view(bytes.data(), bytes.size())).string(seat, Seat::kMaxBytes);
    if (seat.empty()) throw error(ErrorKind::aborted, "rank 0 could not open a store to meet in");
    return bootstrap::decode_seat(seat).take_or_throw();
  }

  Result<std::string> open_place(std::optional<MeetingPlace>& place) {
    const comm::Settings& settings = context_->settings();
    const auto [compression, timeout] = state_->with_builder(
        [](const comm::CallBuilder& builder) { return std::pair(builder.compression(), builder.timeout()); });
    // A newcomer that vanishes with its seat leaves time for another meeting.
    const Nanoseconds meeting = std::clamp<Nanoseconds>((deadline_ - now()) / 2, kShortestMeeting, kLongestMeeting);
    Seat seat{.world = group_.size() + static_cast<int>(taken_),
              .job = fmt::format("{}/grown/{:016x}", settings.job, os::random_nonce()),
              .compression = compression.to_string(),
              .timeout_ns = timeout.count(),
              .meeting_ns = meeting.count()};
    QCCL_ASSIGN(place, MeetingPlace::open(seat.job, seat.world, *context_));
    seat.addresses = place->addresses;
    seat.port = place->server->port();
    const std::string text = bootstrap::encode_seat(seat);
    if (text.size() > Seat::kMaxBytes) {
      return Failure(ErrorKind::invalid_argument, "grow: the job's name is too long");
    }
    FieldWriter writer;
    writer.string(text, Seat::kMaxBytes);
    return writer.take();
  }

  // The same on all members that return. Those that have met agree on who of them lives, in a group that serves only
  // for that; a member that has not met leaves that group, as a member does that is lost or fails before.
  bool all_have_met(bool here) {
    std::shared_ptr<CommunicatorState> met;
    collective([&] { met = state_->dup(); });
    if (!here) return false;
    std::size_t living = 0;
    collective([&] { living = agree_on_members(*met, {}).size(); });
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
