#include "qccl/error_feedback.h"

#include <gtest/gtest.h>

#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"
#include "base/digest/digest.h"
#include "engine/call/call_arguments.h"
#include "qccl/error.h"

namespace qccl {
namespace {

ErrorFeedback filled(std::size_t count) {
  ErrorFeedback feedback(count, 7);
  for (std::size_t i = 0; i < count; ++i) feedback.residual()[i] = static_cast<float>(i) - 2.5f;
  return feedback;
}

std::vector<float> values(const ErrorFeedback& feedback) {
  return {feedback.residual().begin(), feedback.residual().end()};
}

template <class Call>
ErrorKind kind_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::aborted;
}

TEST(ErrorFeedback, begins_at_zero_and_copies_name_the_same_state) {
  const ErrorFeedback feedback(5);
  EXPECT_EQ(feedback.size(), 5u);
  EXPECT_EQ(values(feedback), std::vector<float>(5));
  EXPECT_EQ(feedback.counter(), 0u);
  const ErrorFeedback copy = feedback;
  copy.residual()[3] = 1;
  EXPECT_EQ(feedback.residual()[3], 1);
  EXPECT_TRUE(ErrorFeedback().is_none());
  EXPECT_FALSE(ErrorFeedback(0).is_none());
  EXPECT_EQ(kind_of([] { ErrorFeedback().reset(); }), ErrorKind::misuse);
}

TEST(ErrorFeedback, reset_forgets_all_or_a_part) {
  ErrorFeedback feedback = filled(6);
  feedback.reset(1, 2);
  EXPECT_EQ(values(feedback), (std::vector<float>{-2.5f, 0, 0, 0.5f, 1.5f, 2.5f}));
  EXPECT_EQ(feedback.counter(), 7u);
  feedback.reset(6, 0);
  EXPECT_EQ(kind_of([&] { feedback.reset(5, 2); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { feedback.reset(7, 0); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { feedback.reset(2, SIZE_MAX); }), ErrorKind::invalid_argument);
  feedback.reset();
  EXPECT_EQ(values(feedback), std::vector<float>(6));
  EXPECT_EQ(feedback.counter(), 0u);
}

TEST(ErrorFeedback, a_saved_state_is_restored) {
  for (const std::size_t count : {0, 1, 1000}) {
    const ErrorFeedback feedback = filled(count);
    const ErrorFeedback restored = ErrorFeedback::restore(feedback.save());
    EXPECT_EQ(restored.size(), count);
    EXPECT_EQ(restored.counter(), 7u);
    EXPECT_EQ(values(restored), values(feedback));
  }
}

TEST(ErrorFeedback, the_saved_bytes_are_the_documented_ones) {
  ErrorFeedback feedback(1, 3);
  feedback.residual()[0] = 1;
  const auto saved = feedback.save();
  ASSERT_EQ(saved.size(), 44u);
  EXPECT_EQ(std::memcmp(saved.data(), "QCCLERRF", 8), 0);
  EXPECT_EQ(load<std::uint64_t>(&saved[8]), 1u);
  EXPECT_EQ(load<std::uint64_t>(&saved[16]), 1u);
  EXPECT_EQ(load<std::uint64_t>(&saved[24]), 3u);
  EXPECT_EQ(load<float>(&saved[32]), 1.0f);
  EXPECT_EQ(load<std::uint64_t>(&saved[36]), XXH3_64bits(saved.data(), 36));
}

TEST(ErrorFeedback, any_damage_is_corrupt_data) {
  const auto saved = filled(10).save();
  for (std::size_t i = 0; i < saved.size(); ++i) {
    auto damaged = saved;
    damaged[i] ^= std::byte{0x10};
    EXPECT_EQ(kind_of([&] { ErrorFeedback::restore(damaged); }), ErrorKind::corrupt_data) << "byte " << i;
    const auto cut = std::vector(saved.begin(), saved.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(kind_of([&] { ErrorFeedback::restore(cut); }), ErrorKind::corrupt_data) << i << " bytes";
  }
  auto longer = saved;
  longer.push_back(std::byte{0});
  EXPECT_EQ(kind_of([&] { ErrorFeedback::restore(longer); }), ErrorKind::corrupt_data);
}

// Gives the state a valid checksum, as only a program would.
std::vector<std::byte> resealed(std::vector<std::byte> saved) {
  const std::size_t end = saved.size() - 8;
  store<std::uint64_t>(&saved[end], digest({reinterpret_cast<const char*>(saved.data()), end}));
  return saved;
}

TEST(ErrorFeedback, another_version_is_unsupported_and_a_wrong_count_corrupt) {
  auto saved = filled(10).save();
  store<std::uint64_t>(&saved[8], 2);
  EXPECT_EQ(kind_of([&] { ErrorFeedback::restore(resealed(saved)); }), ErrorKind::unsupported);
  for (const std::uint64_t count :
       {std::uint64_t{9}, std::uint64_t{11}, (std::uint64_t{1} << 62) + 10, ~std::uint64_t{0}}) {
    saved = filled(10).save();
    store<std::uint64_t>(&saved[16], count);
    EXPECT_EQ(kind_of([&] { ErrorFeedback::restore(resealed(saved)); }), ErrorKind::corrupt_data);
  }
  saved = filled(10).save();
  saved.insert(saved.begin() + 40, std::byte{0});
  EXPECT_EQ(kind_of([&] { ErrorFeedback::restore(resealed(saved)); }), ErrorKind::corrupt_data);
}

TEST(ErrorFeedback, one_call_at_a_time_claims_it) {
  ErrorFeedback feedback(3);
  internal::FeedbackState& state = *feedback.state();
  EXPECT_EQ(state.claim(nullptr), 0u);
  EXPECT_EQ(state.claim(nullptr), std::nullopt);
  EXPECT_EQ(kind_of([&] { feedback.residual(); }), ErrorKind::misuse);
  EXPECT_EQ(kind_of([&] { feedback.save(); }), ErrorKind::misuse);
  EXPECT_EQ(kind_of([&] { feedback.reset(); }), ErrorKind::misuse);
  EXPECT_EQ(feedback.size(), 3u);
  EXPECT_NE(state.unusable_reason(), "");
  state.end(true);
  EXPECT_EQ(state.unusable_reason(), "");
  EXPECT_EQ(state.claim(nullptr), 1u);
  state.end(true);
  feedback.reset();
  EXPECT_EQ(state.claim(nullptr), 0u);
}

std::vector<float> residual_of(const ErrorFeedback& feedback) {
  return {feedback.residual().begin(), feedback.residual().end()};
}

// What a call does to the first `count` elements of a state.
void change(const ErrorFeedback& feedback, std::size_t count, float value) {
  internal::FeedbackState& state = *feedback.state();
  ASSERT_TRUE(state.claim(nullptr));
  state.save(0, count);
  std::fill_n(state.residual(), count, value);
}

TEST(ErrorFeedback, a_failed_call_leaves_it_as_it_was) {
  ErrorFeedback feedback(3);
  const float* const memory = feedback.residual().data();
  change(feedback, 3, 1);
  feedback.state()->end(true);
  change(feedback, 2, 7);
  feedback.state()->take_back(0, 2);
  feedback.state()->end(false);
  EXPECT_EQ(residual_of(feedback), std::vector<float>(3, 1));
  EXPECT_EQ(feedback.counter(), 1u);
  EXPECT_EQ(feedback.residual().data(), memory);
  EXPECT_EQ(kind_of([&] { feedback.settle(2); }), ErrorKind::misuse) << "the call had not come to all elements";
  EXPECT_EQ(kind_of([&] { feedback.settle(0); }), ErrorKind::misuse);
}

TEST(ErrorFeedback, settles_on_either_side_of_its_last_call) {
  ErrorFeedback feedback(3);
  const float* const memory = feedback.residual().data();
  EXPECT_EQ(kind_of([&] { feedback.settle(1); }), ErrorKind::misuse);
  change(feedback, 3, 1);
  feedback.state()->end(true);
  feedback.settle(1);
  EXPECT_EQ(residual_of(feedback), std::vector<float>(3, 1));
  feedback.settle(0);
  EXPECT_EQ(residual_of(feedback), std::vector<float>(3, 0));
  EXPECT_EQ(feedback.counter(), 0u);
  change(feedback, 3, 2);
  EXPECT_EQ(kind_of([&] { feedback.settle(1); }), ErrorKind::misuse) << "a call uses it";
  feedback.state()->take_back(0, 3);
  feedback.state()->end(false);
  EXPECT_EQ(residual_of(feedback), std::vector<float>(3, 0));
  feedback.settle(1);
  EXPECT_EQ(residual_of(feedback), std::vector<float>(3, 2));
  feedback.settle(0);
  EXPECT_EQ(residual_of(feedback), std::vector<float>(3, 0));
  EXPECT_EQ(feedback.residual().data(), memory);
  feedback.reset();
  EXPECT_EQ(kind_of([&] { feedback.settle(1); }), ErrorKind::misuse);
}

}  // namespace
}  // namespace qccl
