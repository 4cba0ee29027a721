// Compressed messages over the simulated network: every codec and size, error feedback, and what happens to halves that
// differ and to payloads that do not decode.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numbers>

#include "kernels/reduce/reduce.h"
#include "support/codec_contract.h"
#include "support/sim_world.h"

namespace qccl::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kSmall = 1000;
constexpr std::size_t kLarge = 300'001;  // many slices, the last one short

std::vector<float> wave(std::size_t count, float factor = 1) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = factor * std::sin(static_cast<float>(i) * 0.37f);
  return values;
}

// The two halves of a message of floats, and their compressions.
struct Halves {
  explicit Halves(const Compression& both) : Halves(both, both) {}
  Halves(const Compression& sender, const Compression& receiver) : sent_as(sender), received_as(receiver) {}

  SimWork send(SimWorld& world, int from, int to) {
    return post(world, from, {.peer = GroupRank(to), .compression = sent_as}, out.data());
  }
  SimWork receive(SimWorld& world, int at, int from) {
    in.assign(out.size(), -1);
    return post(world, at, {.incoming = true, .peer = GroupRank(from), .compression = received_as}, in.data());
  }
  SimWork post(SimWorld& world, int rank, engine::Message message, float* data) const {
    message.codec = make_codec(message.compression).take_or_throw();
    return world.post_message(rank, message,
                              {.count = out.size(),
                               .type = DataType::float32,
                               .data = reinterpret_cast<std::byte*>(data),
                               .feedback = message.incoming ? ErrorFeedback() : feedback});
  }

  Compression sent_as;
  Compression received_as;
  std::vector<float> out{};
  std::vector<float> in{};
  ErrorFeedback feedback{};
};

std::string failure_of(const SimWork& work) {
  if (!work->done()) return "not done";
  return work->failure() ? work->failure()->message : "";
}

TEST(CompressedMessage, of_any_codec_and_size_arrives_within_its_bound_whichever_half_comes_first) {
  for (const Compression& compression : extreme_compressions()) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, kSmall, kLarge}) {
      for (const bool send_first : {true, false}) {
        SCOPED_TRACE(fmt::format("{} of {}, {} first", compression.to_string(), count, send_first ? "send" : "recv"));
        SimWorld world(2);
        Halves halves(compression);
        halves.out = wave(count);
        std::vector<SimWork> works;
        if (send_first) works.push_back(halves.send(world, 0, 1));
        if (send_first) world.run_for(milliseconds(5));
        works.push_back(halves.receive(world, 1, 0));
        if (!send_first) world.run_for(milliseconds(5));
        if (!send_first) works.push_back(halves.send(world, 0, 1));
        ASSERT_TRUE(world.run(works));
        for (const SimWork& work : works) ASSERT_EQ(failure_of(work), "");
        const auto codec = make_codec(compression).take_or_throw();
        EXPECT_EQ(beyond_bound(*codec, halves.out, halves.in), "");
        world.settle();
        EXPECT_EQ(world.held_frames(), 0u);
      }
    }
  }
}

TEST(CompressedMessage, takes_the_bytes_of_its_codec) {
  std::size_t sent_bytes = 0;
  SimWorld world(2);
  world.network().set_tap([&](int, int, Bytes frame) { sent_bytes += frame.size(); });
  Halves halves(block_int({.bits = 4, .block = 128}));
  halves.out = wave(kLarge);
  ASSERT_TRUE(world.run({halves.send(world, 0, 1), halves.receive(world, 1, 0)}));
  EXPECT_LT(sent_bytes, kLarge * 4 / 7) << "4 bits and a scale in place of 32";
  EXPECT_NE(halves.in, halves.out);
}

TEST(CompressedMessage, to_oneself_and_of_any_source_is_encoded_like_any_other) {
  const Compression compression = minmax({.bits = 4});
  SimWorld world(3);
  Halves other(compression), own(compression), any(compression);
  other.out = own.out = any.out = wave(kLarge);
  ASSERT_TRUE(world.run({other.send(world, 0, 1), other.receive(world, 1, 0)}));
  ASSERT_TRUE(world.run({own.send(world, 2, 2), own.receive(world, 2, 2)}));
  const SimWork received = any.receive(world, 1, kAnySource);
  ASSERT_TRUE(world.run({any.send(world, 2, 1), received}));
  EXPECT_EQ(received->source(), 2);
  EXPECT_EQ(own.in, other.in);
  EXPECT_EQ(any.in, other.in);
  EXPECT_NE(own.in, own.out);
}

TEST(CompressedMessage, that_is_not_finite_never_becomes_a_number_and_changes_no_other_bucket) {
  for (const Compression& compression : default_compressions()) {
    SCOPED_TRACE(compression.to_string());
    const auto codec = make_codec(compression).take_or_throw();
    SimWorld world(2);
    Halves clean(compression), poisoned(compression);
    clean.out = poisoned.out = wave(kLarge);
    poisoned.out[7] = std::numeric_limits<float>::quiet_NaN();
    poisoned.out[kLarge - 1] = std::numeric_limits<float>::infinity();
    ASSERT_TRUE(world.run({clean.send(world, 0, 1), clean.receive(world, 1, 0)}));
    ASSERT_TRUE(world.run({poisoned.send(world, 0, 1), poisoned.receive(world, 1, 0)}));
    EXPECT_EQ(beyond_bound(*codec, poisoned.out, poisoned.in), "");
  }
}

TEST(CompressedMessage, with_error_feedback_loses_nothing) {
  for (const Compression& compression : default_compressions()) {
    for (const int to : {1, 0}) {
      SCOPED_TRACE(fmt::format("{} to {}", compression.to_string(), to));
      SimWorld world(2);
      Halves halves(compression);
      halves.feedback = ErrorFeedback(kLarge);
      std::vector<float> before(kLarge, 0);
      for (int step = 0; step < 3; ++step) {
        halves.out = wave(kLarge, static_cast<float>(step + 1));
        ASSERT_TRUE(world.run({halves.send(world, 0, to), halves.receive(world, to, 0)}));
        const auto residual = halves.feedback.residual();
        for (std::size_t i = 0; i < kLarge; ++i) {
          const float value = halves.out[i] + before[i];
          ASSERT_EQ(residual[i], value - halves.in[i]) << "element " << i << " of message " << step;
        }
        before.assign(residual.begin(), residual.end());
      }
      EXPECT_EQ(halves.feedback.counter(), 3u);
    }
  }
}

// Stops rank 1 when a slice of a message, from 1, comes.
void fail_at_slice(SimWorld& world, std::size_t number) {
  world.network().set_tap([&world, number, slices = std::size_t{0}](int, int, Bytes frame) mutable {
    const auto header = wire::decode_header(frame.data());
    const bool is_slice = header.ok() && header.value().kind == wire::FrameKind::message_data;
    if (is_slice && ++slices == number) world.network().stop(1);
  });
}

TEST(CompressedMessage, that_fails_leaves_its_error_feedback_as_it_was) {
  SimWorld world(2);
  Halves halves(minmax({.bits = 2}));
  halves.out = wave(kLarge);
  halves.feedback = ErrorFeedback(kLarge);
  ASSERT_TRUE(world.run({halves.send(world, 0, 1), halves.receive(world, 1, 0)}));
  const std::vector<float> before(halves.feedback.residual().begin(), halves.feedback.residual().end());
  fail_at_slice(world, 3);
  const SimWork sent = halves.send(world, 0, 1);
  halves.receive(world, 1, 0);
  world.run_for(seconds(60));
  ASSERT_TRUE(sent->done() && sent->failure());
  EXPECT_TRUE(std::ranges::equal(halves.feedback.residual(), before));
  EXPECT_EQ(halves.feedback.counter(), 1u);
}

// The receive takes the message at once, the send ends in the next round, and the group fails between the two.
TEST(CompressedMessage, that_arrived_keeps_its_error_feedback_although_its_group_fails) {
  SimWorld world(2);
  Halves halves(minmax({.bits = 2}));
  halves.out = wave(kLarge);
  halves.feedback = ErrorFeedback(kLarge);
  const SimWork sent = halves.send(world, 0, 0);
  world.run_for(milliseconds(1));
  const SimWork received = halves.receive(world, 0, 0);
  world.engine(0).groups().fail(kSimGroup, {.kind = ErrorKind::aborted, .message = "enough"});
  world.run_for(milliseconds(1));
  ASSERT_EQ(failure_of(received), "");
  ASSERT_EQ(failure_of(sent), "");
  EXPECT_EQ(halves.feedback.counter(), 1u);
  const auto residual = halves.feedback.residual();
  for (std::size_t i = 0; i < kLarge; ++i) ASSERT_EQ(residual[i], halves.out[i] - halves.in[i]) << "element " << i;
}

TEST(CompressedMessage, that_is_sent_again_after_a_failure_has_the_bits_of_a_first_attempt) {
  const Compression compression = block_int({.bits = 3, .rounding = Rounding::stochastic});
  const auto send_twice = [&](bool fails_between) {
    Halves halves(compression);
    halves.feedback = ErrorFeedback(kLarge);
    for (int message = 0; message < 2; ++message) {
      halves.out = wave(kLarge, static_cast<float>(message + 1));
      if (message == 1 && fails_between) {
        SimWorld lost(2);
        fail_at_slice(lost, 3);
        const SimWork sent = halves.send(lost, 0, 1);
        halves.receive(lost, 1, 0);
        lost.run_for(seconds(60));
        EXPECT_TRUE(sent->done() && sent->failure());
      }
      SimWorld world(2);
      EXPECT_TRUE(world.run({halves.send(world, 0, 1), halves.receive(world, 1, 0)}));
    }
    return std::pair(halves.in, halves.feedback.save());
  };
  EXPECT_TRUE(send_twice(true) == send_twice(false));
}

// ---- halves that differ, and bytes that no honest peer sends

TEST(CompressedMessage, whose_halves_differ_is_an_error_on_both_sides_that_names_both) {
  const Compression eight = block_int({.bits = 8}), four = block_int({.bits = 4});
  for (const auto& [sender, receiver] :
       {std::pair{eight, four}, {eight, none()}, {none(), eight}, {eight, lossless()}}) {
    for (const std::size_t count : {kSmall, kLarge}) {
      for (const int from : {0, 1}) {  // 1: to itself
        SCOPED_TRACE(fmt::format("{} to {} from {}", sender.to_string(), receiver.to_string(), from));
        SimWorld world(3);
        Halves halves(sender, receiver);
        halves.out = wave(count);
        halves.send(world, from, 1);
        world.run_for(milliseconds(1));
        const SimWork received = halves.receive(world, 1, from);
        world.run_for(milliseconds(5));
        ASSERT_TRUE(received->done() && received->failure());
        const SimWork later = halves.send(world, from, 2);
        world.run_for(milliseconds(1));
        ASSERT_TRUE(later->done() && later->failure());
        const auto half = [&](const char* call, const char* peer, int rank, const Compression& own) {
          const std::string codec = own.is_none() ? "" : ", " + own.to_string();
          return fmt::format("{}(count={}, float32, {}={}{})", call, count, peer, rank, codec);
        };
        for (const ErrorInfo& failure : {*received->failure(), *later->failure()}) {
          EXPECT_EQ(failure.kind, ErrorKind::misuse);
          for (const auto& part : {half("send", "to", 1, sender), half("recv", "from", from, receiver)}) {
            EXPECT_NE(failure.message.find(part), std::string::npos) << failure.message << " lacks " << part;
          }
        }
        EXPECT_EQ(halves.in, std::vector<float>(count, -1));
      }
    }
  }
}

// Changes the header of the first frame of a kind, and returns how the receive fails.
std::string failure_after(std::size_t count, wire::FrameKind kind,
                          const std::function<void(wire::FrameHeader&, Bytes)>& change) {
  SimWorld world(2);
  bool hit = false;
  world.network().set_tap([&](int, int, Bytes frame) {
    wire::FrameHeader header = wire::decode_header(frame.data()).value();
    if (hit || header.kind != kind) return;
    hit = true;
    change(header, frame.subspan(wire::kHeaderBytes));
    if (header.payload_checksum != 0) {
      header.payload_checksum = wire::payload_checksum(frame.subspan(wire::kHeaderBytes, header.payload_bytes));
    }
    wire::encode_header(header, frame.data());
  });
  Halves halves(grid({.entropy = true}));
  halves.out = wave(count);
  const SimWork received = halves.receive(world, 1, 0);
  halves.send(world, 0, 1);
  world.run_for(milliseconds(50));
  EXPECT_TRUE(hit);
  return failure_of(received);
}

TEST(CompressedMessage, that_does_not_decode_is_corrupt_data_of_its_sender) {
  const auto garble = [](wire::FrameHeader& header, Bytes payload) {
    const std::size_t begin = header.kind == wire::FrameKind::message ? wire::kMostEnvelopeBytes : 0;
    std::memset(payload.data() + begin, 0xFF, header.payload_bytes - begin);
  };
  for (const auto& [count, kind] :
       {std::pair{kSmall, wire::FrameKind::message}, {kLarge, wire::FrameKind::message_data}}) {
    const std::string failure = failure_after(count, kind, garble);
    EXPECT_NE(failure.find("rank 0 sent slice 0 of recv(count="), std::string::npos) << failure;
    EXPECT_NE(failure.find("which does not decode"), std::string::npos) << failure;
  }
}

TEST(CompressedMessage, that_announces_another_number_of_slices_is_refused) {
  const std::string failure =
      failure_after(kLarge, wire::FrameKind::message, [](wire::FrameHeader& header, Bytes) { ++header.slice; });
  EXPECT_NE(failure.find("rank 0 announced"), std::string::npos) << failure;
}

TEST(CompressedMessage, whose_compression_is_unknown_is_named_by_number) {
  const std::string failure = failure_after(kSmall, wire::FrameKind::message, [](wire::FrameHeader&, Bytes payload) {
    payload[13] = std::byte{200};  // wire/frame.h: the codec
  });
  EXPECT_NE(failure.find("to=1, codec 200)"), std::string::npos) << failure;
}

}  // namespace
}  // namespace qccl::testing
