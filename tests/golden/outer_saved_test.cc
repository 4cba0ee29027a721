// The bytes of an OuterLoop's saved state, whose table is in saved_state.cc: states of earlier versions load.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "support/error_of.h"
#include "support/thread_job.h"

namespace qccl::testing {
namespace {

using train::OuterLoop;
using train::OuterOptions;
using train::OuterParameter;

constexpr int kRanks = 2;

// Two layers, each a fragment.
struct Model {
  std::vector<float> first{1, -2}, second{0.5F};

  std::vector<OuterParameter> parameters() {
    return {OuterParameter::of("block.0", first), OuterParameter::of("block.1", second)};
  }
  void train(int rank) {
    first[0] += 0.3F * static_cast<float>(rank + 1);
    first[1] += 0.1F;
    second[0] -= 0.7F;
  }
};

OuterOptions options() {
  return {.every = 4,
          .fragments = 2,
          .delay = 2,
          .compression = block_int({.bits = 4}),
          .is_weighted = true,
          .optimizer = std::make_shared<train::OuterSgd>(
              train::OuterSgdOptions{.learning_rate = 0.5, .momentum = 0.5, .nesterov = true})};
}

// What rank 0 saves in train_to_saved().
const std::string kSaved =
    "5143434c4f555452"                                  // "QCCLOUTR"
    "0200000000000000"                                  // version
    "33927e0ebbf8180a"                                  // settings
    "0a000000000000000500000000000000"                  // steps, rounds
    "03000000000000000300000000000000"                  // origin's step and round
    "01000000000000000900000000000000"                  // a round is in flight, since step
    "0000000000002840000000000000e03f000000000000e03f"  // its weight and rate, the rate
    "04000000000000003433b33f"                          // the round's deltas
    "080000000000000000c44c40abd4c7bf"                  // fragment 0: global values
    "080000000000000000f001c056f5b8be"                  // optimizer
    "08000000000000000082913d08242fc0"                  // residual
    "08000000000000000000000000002240"                  // samples
    "0400000000000000721c19c0"                          // fragment 1: global values
    "0400000000000000721c1d40"                          // optimizer
    "0400000000000000003033bd"                          // residual
    "08000000000000000000000000000840"                  // samples
    "3f41260ac31c42ee";                                 // XXH3

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte each : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(each));
  return text;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at < text.size(); at += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(at, 2), nullptr, 16)));
  }
  return bytes;
}

void expect_success(const std::function<void(Communicator&)>& body) {
  EXPECT_EQ(run_threads(kRanks, {}, body), std::vector<std::string>(kRanks, ""));
}

void train(OuterLoop& outer, Model& model, int steps) {
  for (int step = 0; step < steps; ++step) {
    model.train(outer.group().rank());
    outer.step(3);
  }
}

// In step 10, with the round in flight that began in step 9: the third since finish() in step 3.
void train_to_saved(OuterLoop& outer, Model& model) {
  train(outer, model, 3);
  outer.finish();
  train(outer, model, 7);
}

TEST(OuterSaved, bytes_are_those_of_version_2) {
  expect_success([](Communicator& comm) {
    Model model;
    OuterLoop outer(comm, model.parameters(), options());
    train_to_saved(outer, model);
    if (comm.rank() == 0) EXPECT_EQ(hex(outer.save()), kSaved);
  });
}

TEST(OuterSaved, a_state_of_version_2_goes_on_where_it_was) {
  expect_success([](Communicator& comm) {
    Model model;
    OuterLoop expected(comm, model.parameters(), options());
    train_to_saved(expected, model);
    Model later;
    OuterLoop outer(comm, later.parameters(), options());
    later = model;
    outer.load(comm.rank() == 0 ? bytes_of(kSaved) : expected.save());
    EXPECT_EQ(outer.steps(), 10u);
    EXPECT_EQ(outer.rounds(), expected.rounds());
    EXPECT_EQ(outer.rounds_begun(), outer.rounds() + 1);
    train(expected, model, 5);
    train(outer, later, 5);
    EXPECT_EQ(hex(outer.save()), hex(expected.save()));
    EXPECT_EQ(later.first, model.first);
    EXPECT_EQ(later.second, model.second);
  });
}

}  // namespace
}  // namespace qccl::testing
