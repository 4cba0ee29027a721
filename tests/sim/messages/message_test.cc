// Messages: which send matches which receive, in which order, within which bounds, and what happens to
// those whose sizes do not fit or whose other half never comes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "engine/frames/frame_sender.h"
#include "engine/run/mailbox.h"
#include "support/elements.h"
#include "support/sim_world.h"

namespace qccl::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A message of `count` bytes that all hold its number, or room for one.
struct Mail {
  std::vector<std::byte> bytes;
  SimWork work;

  bool holds(int number) const {
    for (const std::byte byte : bytes) {
      if (byte != static_cast<std::byte>(number)) return false;
    }
    return true;
  }
};

class Post {
 public:
  explicit Post(SimWorld& world) : world_(world) {}

  Mail& send(int from, int to, int number, std::size_t bytes, int tag = 0) {
    Mail& mail = add(bytes, static_cast<std::byte>(number));
    mail.work = world_.post_message(from, {.peer = GroupRank(to), .tag = tag}, what(mail));
    return mail;
  }
  Mail& receive(int at, int from, std::size_t bytes, int tag = 0) {
    Mail& mail = add(bytes, std::byte{0xEE});
    mail.work = world_.post_message(at, {.incoming = true, .peer = GroupRank(from), .tag = tag}, what(mail));
    return mail;
  }
  bool run() {
    std::vector<SimWork> works;
    for (const Mail& mail : mail_) works.push_back(mail.work);
    return world_.run(works);
  }
  // The first failure, if any.
  std::string failure() const {
    for (const Mail& mail : mail_) {
      if (mail.work->done() && mail.work->failure()) return mail.work->failure()->message;
    }
    return {};
  }
  void set_timeout(Nanoseconds timeout) { timeout_ = timeout; }

 private:
  Mail& add(std::size_t bytes, std::byte content) {
    mail_.push_back({std::vector<std::byte>(bytes, content), nullptr});
    return mail_.back();
  }
  SimMessage what(Mail& mail) const {
    return {.count = mail.bytes.size(), .type = DataType::uint8, .data = mail.bytes.data(), .timeout = timeout_};
  }

  SimWorld& world_;
  std::deque<Mail> mail_;
  Nanoseconds timeout_ = seconds(10);
};

constexpr std::size_t kSmall = 100;
constexpr std::size_t kLarge = 3'000'001;  // many slices, the last one short

TEST(Message, of_any_size_arrives_whichever_half_comes_first) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kSmall, engine::kEagerStreamBytes,
                                  engine::kEagerStreamBytes + 1, kDefaultSliceBytes * 9, kLarge}) {
    for (const bool send_first : {true, false}) {
      SimWorld world(2);
      Post post(world);
      if (send_first) post.send(0, 1, 7, bytes);
      if (send_first) world.run_for(milliseconds(5));
      Mail& received = post.receive(1, 0, bytes);
      if (!send_first) world.run_for(milliseconds(5));
      if (!send_first) post.send(0, 1, 7, bytes);
      ASSERT_TRUE(post.run()) << bytes << " bytes";
      EXPECT_EQ(post.failure(), "");
      EXPECT_TRUE(received.holds(7)) << bytes << " bytes";
      EXPECT_EQ(received.work->source(), 0);
      world.settle();
      EXPECT_EQ(world.held_frames(), 0u);
    }
  }
}

TEST(Message, of_one_tag_keeps_its_place_whatever_its_size) {
  SimWorld world(2, {.link = {.jitter = milliseconds(1), .slots = 2}});
  Post post(world);
  constexpr int kMessages = 60;
  const auto size = [](int i) { return i % 3 == 1 ? 200'000 : std::size_t{40}; };
  std::vector<Mail*> received;
  for (int i = 0; i < kMessages; ++i) post.send(0, 1, i, size(i));
  world.run_for(milliseconds(3));
  for (int i = 0; i < kMessages; ++i) received.push_back(&post.receive(1, 0, size(i)));
  ASSERT_TRUE(post.run());
  ASSERT_EQ(post.failure(), "");
  for (int i = 0; i < kMessages; ++i) EXPECT_TRUE(received[static_cast<std::size_t>(i)]->holds(i)) << i;
}

TEST(Message, meets_the_receive_of_its_tag) {
  for (const std::size_t bytes : {kSmall, kLarge}) {
    SimWorld world(2);
    Post post(world);
    std::vector<Mail*> received;
    received.push_back(&post.receive(1, 0, bytes, 2));
    for (int tag = 0; tag < 5; ++tag) post.send(0, 1, tag, bytes, tag);
    world.run_for(milliseconds(2));
    for (const int tag : {4, 0, 3, 1}) received.push_back(&post.receive(1, 0, bytes, tag));
    ASSERT_TRUE(post.run());
    ASSERT_EQ(post.failure(), "");
    const int expected[] = {2, 4, 0, 3, 1};
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(received[static_cast<std::size_t>(i)]->holds(expected[i]));
  }
}

// The envelope, its answer and the data: three latencies, however many slices there are.
TEST(Message, between_distant_ranks_takes_no_round_trip_for_each_window_of_eight_slices) {
  SimWorld world(2, {.link = {.latency = milliseconds(50), .slots = 1000},
                     .slice_bytes = 4096,
                     .window_bytes = std::uint64_t{1} << 20});
  Post post(world);
  post.send(0, 1, 7, 400'000);
  const Mail& received = post.receive(1, 0, 400'000);
  ASSERT_TRUE(post.run());
  ASSERT_EQ(post.failure(), "");
  EXPECT_TRUE(received.holds(7));
  EXPECT_LT(world.now().time_since_epoch(), milliseconds(160));
}

TEST(AnySource, takes_the_earliest_and_says_whose_it_was) {
  for (const std::size_t bytes : {kSmall, kLarge}) {
    SimWorld world(4);
    Post post(world);
    for (const int from : {2, 0, 3}) {
      post.send(from, 1, from, bytes);
      world.run_for(milliseconds(1));
    }
    for (const int from : {2, 0, 3}) {
      Mail& mail = post.receive(1, kAnySource, bytes);
      ASSERT_TRUE(world.run({mail.work}));
      EXPECT_EQ(mail.work->source(), from);
      EXPECT_TRUE(mail.holds(from));
    }
  }
}

TEST(AnySource, waits_its_turn_among_receives_that_name_their_source) {
  SimWorld world(3);
  Post post(world);
  Mail& named = post.receive(1, 2, kSmall);
  Mail& any = post.receive(1, kAnySource, kSmall);
  Mail& other_tag = post.receive(1, kAnySource, kSmall, 9);
  post.send(2, 1, 1, kSmall);
  post.send(2, 1, 2, kSmall);
  post.send(0, 1, 3, kSmall, 9);
  ASSERT_TRUE(post.run());
  EXPECT_TRUE(named.holds(1) && any.holds(2) && other_tag.holds(3));
  EXPECT_EQ(any.work->source(), 2);
  EXPECT_EQ(other_tag.work->source(), 0);
}

TEST(Message, to_oneself_is_copied) {
  for (const std::size_t bytes : {std::size_t{0}, kSmall, kLarge}) {
    SimWorld world(2);
    Post post(world);
    post.send(1, 1, 5, bytes, 3);
    world.run_for(milliseconds(1));
    Mail& late = post.receive(1, 1, bytes, 3);
    Mail& early = post.receive(1, kAnySource, bytes);
    post.send(1, 1, 6, bytes);
    ASSERT_TRUE(post.run());
    EXPECT_TRUE(late.holds(5) && early.holds(6));
    EXPECT_EQ(early.work->source(), 1);
  }
}

TEST(Message, does_not_meet_those_of_other_groups_or_disturb_collectives) {
  SimWorld world(2, {.link = {.jitter = milliseconds(1)}});
  world.open_group(7, "reversed", {1, 0});
  Post post(world);
  post.send(0, 1, 1, kLarge);
  std::vector<std::byte> out(kSmall, std::byte{2});
  std::vector<std::byte> in(kSmall);
  const SimMessage sent{.count = kSmall, .type = DataType::uint8, .data = out.data(), .group = 7};
  const SimMessage received{.count = kSmall, .type = DataType::uint8, .data = in.data(), .group = 7};
  const auto other = world.post_message(0, {.peer = GroupRank(0)}, sent);  // group rank 0 is world rank 1
  std::vector<SimBuffers> buffers(2);
  for (SimBuffers& each : buffers) each.input.resize(4000);
  EXPECT_FALSE(world.collective(make_call(Collective::all_reduce, 1000, DataType::float32, 2), buffers));
  Mail& mail = post.receive(1, 0, kLarge);
  const auto reversed = world.post_message(1, {.incoming = true, .peer = GroupRank(1)}, received);
  ASSERT_TRUE(post.run() && world.run({other, reversed}));
  EXPECT_TRUE(mail.holds(1));
  EXPECT_EQ(in, out);
}

// ---- bounds

TEST(UnexpectedMessages, are_bounded_by_the_eager_budget_and_lose_nothing) {
  SimWorld world(2);
  std::size_t inline_bytes = 0;
  world.network().set_tap([&](int, int, Bytes frame) {
    const auto header = wire::decode_header(frame.data());
    ASSERT_TRUE(header.ok());
    if (header.value().kind == wire::FrameKind::message) inline_bytes += frame.size();
  });
  Post post(world);
  post.set_timeout(std::chrono::hours(1));
  constexpr int kMessages = 200;
  for (int i = 0; i < kMessages; ++i) post.send(0, 1, i, 20'000, i % 7);
  world.run_for(seconds(1));
  EXPECT_LE(inline_bytes, engine::kEagerBudget + kMessages * 80u) << "beyond the budget come envelopes alone";
  EXPECT_GT(inline_bytes, engine::kEagerBudget - 40'000);
  std::vector<Mail*> received(kMessages);
  for (int i = kMessages; i-- > 0;) {  // backwards by tag, in order within each
    const int tag = i % 7;
    const int nth = (kMessages - 1 - i) / 7;
    const int number = tag + 7 * nth;
    if (number < kMessages) received[static_cast<std::size_t>(number)] = &post.receive(1, 0, 20'000, tag);
  }
  for (int i = 0; i < kMessages; ++i) {
    if (received[static_cast<std::size_t>(i)] == nullptr) {
      received[static_cast<std::size_t>(i)] = &post.receive(1, 0, 20'000, i % 7);
    }
  }
  ASSERT_TRUE(post.run());
  ASSERT_EQ(post.failure(), "");
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(received[static_cast<std::size_t>(i)]->holds(i)) << i;
  world.settle();
  EXPECT_EQ(world.held_frames(), 0u);
  EXPECT_TRUE(world.engine(0).frame_sender().eager().has_room(WorldRank(1), engine::kEagerBudget / 2))
      << "the budget came back";
}

TEST(UnexpectedMessages, without_data_stop_at_a_limit_and_go_on_when_answered) {
  SimWorld world(2, {.link = {.latency = microseconds(1)}});
  std::size_t envelopes = 0;
  world.network().set_tap([&](int, int, Bytes frame) {
    const auto header = wire::decode_header(frame.data());
    if (header.ok() && header.value().kind == wire::FrameKind::message) ++envelopes;
  });
  constexpr std::size_t kExtra = 50;
  const std::size_t bytes = engine::kEagerStreamBytes + 1;
  std::vector<std::byte> data(bytes);
  std::vector<std::byte> room(bytes);
  std::vector<SimWork> works;
  const SimMessage sent{.count = bytes, .type = DataType::uint8, .data = data.data(), .timeout = std::chrono::hours(1)};
  SimMessage received = sent;
  received.data = room.data();
  for (std::size_t i = 0; i < engine::kMaxUnanswered + kExtra; ++i) {
    works.push_back(world.post_message(0, {.peer = GroupRank(1)}, sent));
  }
  world.run_for(milliseconds(500));
  EXPECT_EQ(envelopes, engine::kMaxUnanswered);
  for (std::size_t i = 0; i < kExtra; ++i) {
    works.push_back(world.post_message(1, {.incoming = true, .peer = GroupRank(0)}, received));
  }
  world.run_for(milliseconds(500));
  EXPECT_EQ(envelopes, engine::kMaxUnanswered + kExtra);
  for (std::size_t i = 0; i < kExtra; ++i) EXPECT_TRUE(works[i]->done()) << i;
}

TEST(Message, of_large_size_sends_nothing_before_its_receive_is_there) {
  SimWorld world(2);
  std::size_t slices = 0;
  std::size_t granted = 0;
  std::string violation;
  world.network().set_tap([&](int, int, Bytes frame) {
    const auto header = wire::decode_header(frame.data());
    if (!header.ok()) return;
    if (header.value().kind == wire::FrameKind::message_grant) granted = header.value().slice;
    if (header.value().kind == wire::FrameKind::message_data && ++slices > granted) violation = "not granted";
  });
  Post post(world);
  post.send(0, 1, 1, kLarge);
  world.run_for(seconds(1));
  EXPECT_EQ(slices, 0u);
  post.receive(1, 0, kLarge);
  ASSERT_TRUE(post.run());
  EXPECT_EQ(slices, (kLarge + kDefaultSliceBytes - 1) / kDefaultSliceBytes);
  EXPECT_EQ(violation, "");
}

// ---- misfits and failures

// While the receiver is busy, a sender announces a large message and sends a slice of it at once. Its second message
// stands in for that slice.
TEST(Message, whose_data_comes_before_it_was_granted_is_refused) {
  SimWorld world(2);
  bool hit = false;
  world.network().set_tap([&](int, int, Bytes frame) {
    wire::FrameHeader header = wire::decode_header(frame.data()).value();
    if (header.kind != wire::FrameKind::message || header.sequence != 2) return;
    hit = true;
    header.kind = wire::FrameKind::message_data;
    header.sequence = 1;
    header.phase = 0;
    wire::encode_header(header, frame.data());
  });
  Post post(world);
  const Mail& received = post.receive(1, 0, kLarge);
  world.network().stop(1);
  post.send(0, 1, 1, kLarge);
  post.send(0, 1, 2, kSmall);
  world.run_for(milliseconds(5));
  world.network().resume(1);
  world.run_for(milliseconds(5));
  ASSERT_TRUE(hit && received.work->done() && received.work->failure());
  const ErrorInfo& failure = *received.work->failure();
  EXPECT_EQ(failure.kind, ErrorKind::corrupt_data) << failure.message;
  EXPECT_EQ(failure.peer, 0) << failure.message;
  EXPECT_NE(failure.message.find("sent slice 0 of message 1, which recv(count=3000001, uint8, from=0) does not expect"),
            std::string::npos)
      << failure.message;
  EXPECT_TRUE(received.holds(0xEE));
}

struct Misfit {
  const char* what;
  std::uint64_t sent;
  DataType sent_type;
  std::uint64_t received;
  DataType received_type;
};

TEST(MismatchedMessage, is_an_error_on_both_sides_that_names_both_calls) {
  const Misfit misfits[] = {{"too long", 11, DataType::uint8, 10, DataType::uint8},
                            {"too short", 9, DataType::uint8, 10, DataType::uint8},
                            {"too long for a frame", 400'000, DataType::uint8, 10, DataType::uint8},
                            {"nothing", 0, DataType::uint8, 10, DataType::uint8},
                            {"another type of the same size", 10, DataType::float32, 10, DataType::int32}};
  for (const Misfit& misfit : misfits) {
    for (const int sender : {0, 1}) {  // 1: to itself
      for (const bool send_first : {true, false}) {
        SCOPED_TRACE(fmt::format("{}, from rank {}, {} first", misfit.what, sender, send_first ? "send" : "recv"));
        SimWorld world(3);
        std::vector<std::byte> out(misfit.sent * 4 + 1);
        std::vector<std::byte> in(misfit.received * 4 + 1, std::byte{0x55});
        const SimMessage sent{.count = misfit.sent, .type = misfit.sent_type, .data = out.data()};
        const SimMessage received{.count = misfit.received, .type = misfit.received_type, .data = in.data()};
        const engine::Message send{.peer = GroupRank(1), .tag = 4};
        const engine::Message receive{.incoming = true, .peer = GroupRank(sender), .tag = 4};
        if (send_first) world.post_message(sender, send, sent);
        world.run_for(milliseconds(1));
        const auto work = world.post_message(1, receive, received);
        world.run_for(milliseconds(1));
        if (!send_first) world.post_message(sender, send, sent);
        world.run_for(milliseconds(5));
        ASSERT_TRUE(work->done() && work->failure());
        // The sender's send may have ended already; a later call then reports the failure.
        const auto later = world.post_message(sender, {.peer = GroupRank(2)}, sent);
        world.run_for(milliseconds(1));
        ASSERT_TRUE(later->done() && later->failure());
        for (const ErrorInfo& failure : {*work->failure(), *later->failure()}) {
          EXPECT_EQ(failure.kind, ErrorKind::misuse) << failure.message;
          for (const auto& part :
               {fmt::format("send(count={}, {}, to=1, tag=4)", misfit.sent, to_string(misfit.sent_type)),
                fmt::format("recv(count={}, {}, from={}, tag=4)", misfit.received, to_string(misfit.received_type),
                            sender)}) {
            EXPECT_NE(failure.message.find(part), std::string::npos) << failure.message << " lacks " << part;
          }
        }
        EXPECT_EQ(in, std::vector<std::byte>(in.size(), std::byte{0x55}));
        world.settle();
        EXPECT_EQ(world.held_frames(), 0u);
      }
    }
  }
}

TEST(Receive, that_nobody_sends_to_ends_at_its_deadline_and_names_whom_it_waited_for) {
  for (const int from : {2, kAnySource}) {
    SimWorld world(3);
    Post post(world);
    post.set_timeout(seconds(2));
    Mail& mail = post.receive(1, from, kSmall, 8);
    world.run_for(milliseconds(1900));
    EXPECT_FALSE(mail.work->done());
    world.run_for(milliseconds(200));
    ASSERT_TRUE(mail.work->done() && mail.work->failure());
    const ErrorInfo& failure = *mail.work->failure();
    EXPECT_EQ(failure.kind, ErrorKind::deadline_exceeded);
    EXPECT_EQ(failure.operation, "recv");
    EXPECT_EQ(failure.peer, from == kAnySource ? 0 : 2) << failure.message;
    EXPECT_EQ(failure.expected_bytes, kSmall);
    EXPECT_NE(failure.message.find("tag=8"), std::string::npos) << failure.message;
  }
}

TEST(Send, that_nobody_receives_ends_at_its_deadline) {
  SimWorld world(2);
  Post post(world);
  post.set_timeout(seconds(2));
  Mail& mail = post.send(0, 1, 1, kLarge);
  world.run_for(milliseconds(2100));
  ASSERT_TRUE(mail.work->done() && mail.work->failure());
  EXPECT_EQ(mail.work->failure()->kind, ErrorKind::deadline_exceeded);
  EXPECT_EQ(mail.work->failure()->peer, 1);
  EXPECT_EQ(mail.work->failure()->operation, "send");
}

TEST(DeadPeer, at_any_moment_ends_its_messages_with_its_name) {
  int failures = 0;
  for (int moment = 0; moment < 40; ++moment) {
    const int victim = moment % 2;
    SimWorld world(3, {.seed = static_cast<std::uint64_t>(moment)});
    Post post(world);
    Mail& sent = post.send(0, 1, 1, kLarge);
    Mail& received = post.receive(1, 0, kLarge);
    world.run_for(microseconds(100 * moment));
    world.network().kill(victim);
    world.run_for(milliseconds(50));
    Mail& other = victim == 0 ? received : sent;
    ASSERT_TRUE(other.work->done()) << "hangs, moment " << moment;
    if (!other.work->failure()) continue;
    ++failures;
    EXPECT_EQ(other.work->failure()->kind, ErrorKind::peer_lost);
    EXPECT_EQ(other.work->failure()->peer, victim) << other.work->failure()->message;
    world.settle();
    EXPECT_EQ(world.held_frames(), 0u);
  }
  EXPECT_GT(failures, 20) << "the test meant to hit messages under way";
}

TEST(Goodbye, fails_a_receive_from_the_rank_and_no_message_that_it_sent_before) {
  SimWorld world(3);
  Post post(world);
  Mail& sent = post.send(2, 1, 9, kSmall);
  ASSERT_TRUE(world.run({sent.work}));
  world.engine(2).say_goodbye();
  world.settle();
  Mail& before = post.receive(1, 2, kSmall);
  Mail& after = post.receive(1, 2, kSmall);
  world.run_for(milliseconds(1));
  ASSERT_TRUE(before.work->done() && after.work->done());
  EXPECT_FALSE(before.work->failure());
  EXPECT_TRUE(before.holds(9));
  ASSERT_TRUE(after.work->failure());
  EXPECT_EQ(after.work->failure()->kind, ErrorKind::peer_lost);
  EXPECT_EQ(after.work->failure()->peer, 2);
}

TEST(Goodbye, fails_a_large_message_that_the_rank_has_not_taken) {
  SimWorld world(3);
  Post post(world);
  const Mail& sent = post.send(0, 2, 9, kLarge);
  world.run_for(milliseconds(1));
  world.engine(2).say_goodbye();
  world.run_for(milliseconds(1));
  ASSERT_TRUE(sent.work->done() && sent.work->failure());
  EXPECT_EQ(sent.work->failure()->kind, ErrorKind::peer_lost);
  EXPECT_EQ(sent.work->failure()->peer, 2);
}

TEST(Abort, ends_messages_of_both_halves_and_gives_back_what_came) {
  SimWorld world(2);
  Post post(world);
  for (int i = 0; i < 5; ++i) post.send(0, 1, i, i % 2 == 0 ? kSmall : kLarge);
  post.receive(1, 0, kLarge, 5);
  world.run_for(milliseconds(1));
  world.engine(1).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
  world.run_for(milliseconds(1));
  ASSERT_TRUE(post.run());
  EXPECT_NE(post.failure().find("enough"), std::string::npos);
  world.settle();
  EXPECT_EQ(world.held_frames(), 0u);
}

// ---- frames that no honest peer sends

TEST(DamagedMessage, frames_end_in_an_error_and_touch_nothing) {
  for (int field = 0; field < 6; ++field) {
    for (const std::size_t bytes : {kSmall, kLarge}) {
      SCOPED_TRACE(fmt::format("field {}, {} bytes", field, bytes));
      SimWorld world(2);
      bool hit = false;
      world.network().set_tap([&](int from, int, Bytes frame) {
        auto header = wire::decode_header(frame.data()).value();
        if (from != 0 || hit) return;
        const bool envelope = header.kind == wire::FrameKind::message;
        if (!envelope && (header.kind != wire::FrameKind::message_data || field < 3)) return;
        if (field >= 3 && envelope && bytes == kLarge) return;
        hit = true;
        if (field % 3 == 0) header.sequence += 1;
        if (field % 3 == 1) header.slice += 3;
        if (field % 3 == 2 && envelope) frame[wire::kHeaderBytes] ^= std::byte{1};  // the count
        if (field % 3 == 2 && !envelope) header.kind = wire::FrameKind::message_grant;
        if (header.payload_checksum != 0) header.payload_checksum = wire::payload_checksum(frame.subspan(64));
        wire::encode_header(header, frame.data());
      });
      Post post(world);
      post.send(0, 1, 1, bytes);
      Mail& mail = post.receive(1, 0, bytes);
      world.run_for(milliseconds(50));
      ASSERT_TRUE(hit);
      ASSERT_TRUE(mail.work->done() && mail.work->failure());
      world.settle();
      EXPECT_EQ(world.held_frames(), 0u);
    }
  }
}

TEST(DamagedMessage, a_large_one_that_announces_no_slices_is_an_error) {
  SimWorld world(2);
  world.network().set_tap([](int, int, Bytes frame) {
    auto header = wire::decode_header(frame.data()).value();
    if (header.kind != wire::FrameKind::message) return;
    header.slice = 0;
    wire::encode_header(header, frame.data());
  });
  Post post(world);
  post.send(0, 1, 1, kLarge);
  const Mail& mail = post.receive(1, 0, kLarge);
  world.run_for(milliseconds(50));
  ASSERT_TRUE(mail.work->done() && mail.work->failure());
  EXPECT_NE(mail.work->failure()->message.find("elements with 0 bytes in its frame"), std::string::npos)
      << mail.work->failure()->message;
}

// ---- everything at once

TEST(RandomMessages, of_all_sizes_and_tags_between_all_ranks_arrive_right) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const int ranks = static_cast<int>(1 + random.below(5));
    SimWorld world(ranks, {.seed = seed,
                           .link = {.latency = microseconds(random.below(100)),
                                    .jitter = microseconds(random.below(3000)),
                                    .slots = 1 + random.below(20)},
                           .slice_bytes = std::size_t{4096} << random.below(6),
                           .window_bytes = seed % 3 == 0 ? std::uint64_t{1} << 20 : 0});
    Post post(world);
    struct Half {
      bool incoming;
      int from;
      int to;
      int tag;
      int number;
      std::size_t bytes;
    };
    std::vector<std::vector<Half>> halves(static_cast<std::size_t>(ranks));  // by rank, in posting order
    const int messages = static_cast<int>(random.below(80));
    for (int i = 0; i < messages; ++i) {
      const int from = static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
      const int to = static_cast<int>(random.below(static_cast<std::uint64_t>(ranks)));
      const std::size_t bytes = random.below(random.below(4) == 0 ? 300'000 : 3000);
      const Half half{false, from, to, static_cast<int>(random.below(3)), i, bytes};
      halves[static_cast<std::size_t>(from)].push_back(half);
      halves[static_cast<std::size_t>(to)].push_back(half);
      halves[static_cast<std::size_t>(to)].back().incoming = true;
    }
    std::vector<std::pair<Mail*, int>> received;
    bool left = true;
    while (left) {
      left = false;
      for (auto& own : halves) {
        for (std::uint64_t n = random.below(4); n > 0 && !own.empty(); --n) {
          const Half half = own.front();
          own.erase(own.begin());
          if (half.incoming) {
            received.emplace_back(&post.receive(half.to, half.from, half.bytes, half.tag), half.number);
          } else {
            post.send(half.from, half.to, half.number, half.bytes, half.tag);
          }
        }
        left |= !own.empty();
      }
      if (random.below(2) == 0) world.run_for(microseconds(random.below(300)));
    }
    ASSERT_TRUE(post.run()) << "seed " << seed;
    ASSERT_EQ(post.failure(), "") << "seed " << seed;
    for (const auto& [mail, number] : received) ASSERT_TRUE(mail->holds(number)) << "seed " << seed;
    world.settle();
    EXPECT_EQ(world.held_frames(), 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace qccl::testing
