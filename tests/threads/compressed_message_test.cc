// Compressed messages through the public API, over real shared memory and TCP.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "support/codec_contract.h"
#include "support/elements.h"
#include "support/error_of.h"
#include "support/transports.h"

namespace qccl::testing {
namespace {

class CompressedMessages : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, CompressedMessages, ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         transport_name);

constexpr std::size_t kLarge = 300'001;

std::vector<float> letter(int from, std::size_t count = kLarge) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(from + 1));
  return data;
}

TEST_P(CompressedMessages, of_any_codec_go_around_a_ring) {
  expect_success(3, [](Communicator& comm) {
    const int next = (comm.rank() + 1) % 3;
    const int prev = (comm.rank() + 2) % 3;
    for (const Compression& compression : default_compressions()) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, kLarge}) {
        std::vector<float> received(count);
        EXPECT_EQ(comm.sendrecv(letter(comm.rank(), count), next, received, prev, {.compression = compression}), prev);
        EXPECT_EQ(beyond_bound(*make_codec(compression).take_or_throw(), letter(prev, count), received), "")
            << compression.to_string() << " of " << count;
      }
    }
  });
}

TEST_P(CompressedMessages, of_16_bit_types_are_rounded_once_more) {
  expect_success(2, [](Communicator& comm) {
    const Compression compression = block_int({.bits = 8});
    const auto values = letter(0, 50'000);
    for (const DataType type : {DataType::float16, DataType::bfloat16}) {
      ByteVector sent(values.size() * 2), received(values.size() * 2);
      for (std::size_t i = 0; i < values.size(); ++i) set_element(type, sent.data(), i, values[i]);
      if (comm.rank() == 0) comm.send(sent.data(), values.size(), type, 1, {.compression = compression});
      if (comm.rank() == 1) {
        comm.recv(received.data(), values.size(), type, 0, {.compression = compression});
        std::vector<float> before(values.size()), after(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
          before[i] = static_cast<float>(element(type, sent, i));
          after[i] = static_cast<float>(element(type, received, i));
        }
        EXPECT_EQ(beyond_bound(*make_codec(compression).take_or_throw(), before, after, 0x1p-8), "");
        EXPECT_NE(before, after);
      }
    }
  });
}

TEST_P(CompressedMessages, need_no_aligned_memory) {
  expect_success(2, [](Communicator& comm) {
    const auto values = letter(0);
    std::vector<std::byte> sent(kLarge * 4 + 1), received(kLarge * 4 + 1);
    std::memcpy(sent.data() + 1, values.data(), kLarge * 4);
    std::vector<float> aligned(kLarge), misaligned(kLarge);
    const MessageOptions options{.compression = minmax({.bits = 6})};
    if (comm.rank() == 0) {
      comm.send(sent.data() + 1, kLarge, DataType::float32, 1, options);
      comm.send(values, 1, options);
    } else {
      comm.recv(received.data() + 1, kLarge, DataType::float32, 0, options);
      comm.recv(aligned, 0, options);
      std::memcpy(misaligned.data(), received.data() + 1, kLarge * 4);
      EXPECT_EQ(misaligned, aligned);
    }
  });
}

TEST_P(CompressedMessages, in_a_batch_have_compressions_of_their_own) {
  expect_success(2, [](Communicator& comm) {
    const int other = 1 - comm.rank();
    const auto sent = letter(comm.rank());
    std::vector<float> exact(kLarge), coarse(kLarge);
    comm.group_start();
    comm.recv_async(coarse, other, {.tag = 1, .compression = minmax({.bits = 2})});
    comm.recv_async(exact, other, {.tag = 2, .compression = lossless()});
    comm.send_async(sent, other, {.tag = 2, .compression = lossless()});
    comm.send_async(sent, other, {.tag = 1, .compression = minmax({.bits = 2})});
    comm.group_end().wait();
    EXPECT_EQ(exact, letter(other));
    EXPECT_NE(coarse, letter(other));
  });
}

TEST_P(CompressedMessages, are_compressed_only_where_they_ask_for_it) {
  expect_success(2, [](Communicator& comm) {
    comm.set_compression(minmax({.bits = 2}));
    const auto bytes_of = [&](const MessageOptions& options) {
      const std::uint64_t before = comm.traffic().payload_bytes_sent;
      std::vector<float> received(kLarge);
      comm.sendrecv(letter(comm.rank()), 1 - comm.rank(), received, 1 - comm.rank(), options);
      if (!options.compression) {
        EXPECT_EQ(received, letter(1 - comm.rank()));
      }
      return comm.traffic().payload_bytes_sent - before;
    };
    EXPECT_EQ(bytes_of({}), kLarge * 4);
    const std::uint64_t encoded = bytes_of({.compression = block_int({.bits = 8})});
    EXPECT_GT(encoded, kLarge);
    EXPECT_LT(encoded, kLarge * 11 / 10);
  });
}

TEST_P(CompressedMessages, with_error_feedback_have_the_right_sum_after_many) {
  expect_success(2, [](Communicator& comm) {
    constexpr std::size_t kCount = 5000;
    const MessageOptions options{.compression = minmax({.bits = 2})};
    MessageOptions sending = options;
    sending.error_feedback = ErrorFeedback(kCount);
    std::vector<double> sum(kCount), expected(kCount);
    for (int step = 0; step < 20; ++step) {
      const auto sent = letter(step, kCount);
      std::vector<float> received(kCount);
      if (comm.rank() == 0) comm.send(sent, 1, sending);
      if (comm.rank() == 1) comm.recv(received, 0, options);
      for (std::size_t i = 0; i < kCount; ++i) sum[i] += received[i];
      for (std::size_t i = 0; i < kCount; ++i) expected[i] += sent[i];
    }
    std::vector<float> residual(kCount);
    if (comm.rank() == 0) comm.send(sending.error_feedback.residual().data(), kCount, DataType::float32, 1);
    if (comm.rank() == 0) return;
    comm.recv(residual, 0);
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(sum[i] + residual[i], expected[i], 1e-4);
  });
}

TEST_P(CompressedMessages, that_cannot_be_are_refused_and_leave_the_group_usable) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(10);
    std::vector<std::int32_t> whole(10);
    const auto kind_of = [](const auto& call) { return error_of(call).kind; };
    const int other = 1 - comm.rank();
    EXPECT_EQ(kind_of([&] { comm.send(whole, other, {.compression = cast()}); }), ErrorKind::unsupported);
    EXPECT_EQ(kind_of([&] { comm.recv(whole, other, {.compression = cast()}); }), ErrorKind::unsupported);
    EXPECT_EQ(kind_of([&] { comm.send(data, other, {.compression = automatic()}); }), ErrorKind::unsupported);
    EXPECT_EQ(kind_of([&] { comm.send(data, other, {.compression = Compression{.codec = 99}}); }),
              ErrorKind::invalid_argument);
    const ErrorFeedback feedback(10), longer(11);
    EXPECT_EQ(kind_of([&] { comm.send(data, other, {.compression = cast(), .error_feedback = longer}); }),
              ErrorKind::invalid_argument);
    EXPECT_EQ(kind_of([&] { comm.recv(data, other, {.compression = cast(), .error_feedback = feedback}); }),
              ErrorKind::unsupported);
    EXPECT_EQ(kind_of([&] { comm.send(whole, other, {.error_feedback = feedback}); }), ErrorKind::unsupported);
    comm.sendrecv(data, other, data, other, {.compression = cast(), .error_feedback = feedback});
    EXPECT_EQ(feedback.counter(), 1u);
  });
}

TEST_P(CompressedMessages, in_flight_lend_their_error_feedback_to_no_other) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> data(kLarge);
    const MessageOptions options{.compression = cast(), .error_feedback = ErrorFeedback(kLarge)};
    if (comm.rank() == 0) {
      const Work first = comm.send_async(data, 1, options);  // waits for its receiver
      EXPECT_EQ(error_of([&] { comm.send(data, 1, options); }).kind, ErrorKind::misuse);
      comm.barrier();
      first.wait();
    } else {
      comm.barrier();
      comm.recv(data, 0, {.compression = cast()});
    }
  });
}

TEST_P(CompressedMessages, that_differ_are_an_error_on_both_ranks) {
  const auto failures = run_threads(2, options(), [](Communicator& comm) {
    std::vector<float> data(kLarge);
    if (comm.rank() == 0) comm.send(data, 1, {.compression = block_int({.bits = 8})});
    if (comm.rank() == 1) comm.recv(data, 0, {.compression = block_int({.bits = 4})});
    comm.barrier();
  });
  for (const auto& failure : failures) {
    EXPECT_NE(failure.find("send(count=300001, float32, to=1, int:bits=8"), std::string::npos) << failure;
    EXPECT_NE(failure.find("recv(count=300001, float32, from=0, int:bits=4"), std::string::npos) << failure;
  }
}

}  // namespace
}  // namespace qccl::testing
