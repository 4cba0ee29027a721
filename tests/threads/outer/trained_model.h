// A model for tests of the outer loop, and what they expect of every rank.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "qccl/qccl.h"

namespace qccl::testing {

using train::OuterLoop;
using train::OuterOptions;
using train::OuterParameter;
using train::OuterSgd;
using Values = std::vector<float>;

// Four layers that move at random; the movement is a function of rank and step.
struct TrainedModel {
  std::vector<std::vector<float>> values;

  explicit TrainedModel(int rank) {
    for (const std::size_t size : {9000, 70, 5000, 1}) values.emplace_back(size, static_cast<float>(rank) + 0.5F);
  }
  std::vector<OuterParameter> parameters() {
    std::vector<OuterParameter> list;
    for (std::size_t i = 0; i < values.size(); ++i) {
      list.push_back(OuterParameter::of("block." + std::to_string(i) + ".weight", values[i]));
    }
    return list;
  }
  void train(int rank, int step) {
    std::mt19937 random(static_cast<unsigned>(1000 * step + rank));
    std::normal_distribution<float> normal;
    for (auto& layer : values) {
      for (float& x : layer) x += 0.01F * normal(random);
    }
  }
};

// Averages, and calls these functions first.
class WatchedOptimizer final : public train::OuterOptimizer {
 public:
  std::function<void()> before = [] {};       // a step
  std::function<void()> before_save = [] {};  // of a fragment
  std::function<void()> before_load = [] {};

  void step(std::size_t, std::span<float> global, std::span<const float> gradient) override {
    before();
    for (std::size_t i = 0; i < global.size(); ++i) global[i] -= gradient[i];
  }
  std::vector<std::byte> save(std::size_t) const override {
    before_save();
    return {};
  }
  void load(std::size_t, std::span<const std::byte>) override { before_load(); }
};

inline void expect_same_bits(Communicator& comm, const OuterLoop& outer) {
  for (std::size_t fragment = 0; fragment < outer.fragments(); ++fragment) {
    const std::span<const float> global = outer.global(fragment);
    std::vector<float> first(global.begin(), global.end());
    comm.broadcast(first);
    EXPECT_EQ(std::memcmp(first.data(), global.data(), global.size_bytes()), 0) << "fragment " << fragment;
  }
}

inline std::shared_ptr<OuterSgd> plain_sgd(double rate) {
  return std::make_shared<OuterSgd>(train::OuterSgdOptions{.learning_rate = rate, .momentum = 0});
}

inline std::shared_ptr<OuterSgd> averaging() { return plain_sgd(1); }

}  // namespace qccl::testing
