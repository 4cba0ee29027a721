// Pipelines: messages to neighbours and around the ring, with known and unknown shapes, and refused calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class Pipelines : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Pipelines, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

// More than the eager limit, so that sends wait for their receiver.
constexpr std::int64_t kLarge = 100'000;

Tensor filled(Tensor::Shape shape, float value) {
  Tensor tensor(std::move(shape));
  std::ranges::fill(tensor.values<float>(), value);
  return tensor;
}

float first_of(const Tensor& tensor) { return tensor.values<float>().front(); }

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.kind())) + ": " + error.what();
  }
  return "no error";
}

// Two micro-batches in flight, in a schedule of one forward, one backward.
void run_schedule(Pipeline& pipeline, bool known) {
  const Tensor::Shape shape{2, kLarge};
  const auto room = [&] { return known ? Tensor(shape) : Tensor(); };
  const auto stage = static_cast<float>(pipeline.stage());
  const auto stages = static_cast<float>(pipeline.stages());
  Tensor input = room(), next_input = room(), gradient = room();
  EXPECT_EQ(pipeline.recv_forward(input), !pipeline.is_first());
  if (pipeline.is_first()) input = filled(shape, 100);
  EXPECT_EQ(first_of(input), 100 + stage);
  EXPECT_EQ(pipeline.send_forward(filled(shape, first_of(input) + 1)), !pipeline.is_last());
  EXPECT_EQ(pipeline.recv_forward(next_input), !pipeline.is_first());
  if (pipeline.is_first()) next_input = filled(shape, 200);
  const Tensor output = filled(shape, first_of(next_input) + 1);
  EXPECT_EQ(pipeline.send_forward_recv_backward(output, gradient), !pipeline.is_last());
  if (pipeline.is_last()) gradient = filled(shape, stages);
  EXPECT_EQ(first_of(gradient), stage + 1);
  EXPECT_EQ(gradient.shape(), shape);
  EXPECT_EQ(pipeline.send_backward(filled(shape, first_of(gradient) - 1)), !pipeline.is_first());
  EXPECT_EQ(first_of(output), 201 + stage);
}

TEST_P(Pipelines, run_a_schedule_with_known_and_with_unknown_shapes) {
  for (const int stages : {1, 2, 3, 4}) {
    for (const bool known : {true, false}) {
      expect_success(stages, [&](Communicator& world) {
        Pipeline pipeline(world, {.variable_shapes = !known});
        run_schedule(pipeline, known);
      });
    }
  }
}

TEST_P(Pipelines, two_neighbours_send_to_each_other_at_once) {
  for (const bool variable : {true, false}) {
    expect_success(3, [&](Communicator& world) {
      Pipeline pipeline(world, {.variable_shapes = variable});
      const auto stage = static_cast<float>(pipeline.stage());
      Tensor from_next({kLarge}), from_prev({kLarge});
      // Stages 0 and 1 exchange while 2 waits for 1. Then 1 and 2 exchange.
      if (!pipeline.is_last()) {
        if (pipeline.is_first()) pipeline.send_forward_recv_backward(filled({kLarge}, stage), from_next);
        if (!pipeline.is_first()) pipeline.send_backward_recv_forward(filled({kLarge}, stage), from_prev);
      }
      if (stage == 1) pipeline.send_forward_recv_backward(filled({kLarge}, stage), from_next);
      if (stage == 2) pipeline.send_backward_recv_forward(filled({kLarge}, stage), from_prev);
      if (!pipeline.is_last()) {
        EXPECT_EQ(first_of(from_next), stage + 1);
      }
      if (!pipeline.is_first()) {
        EXPECT_EQ(first_of(from_prev), stage - 1);
      }
    });
  }
}

TEST_P(Pipelines, go_around_the_ring_in_both_directions_at_once) {
  for (const int stages : {1, 2, 3}) {
    for (const bool variable : {true, false}) {
      expect_success(stages, [&](Communicator& world) {
        Pipeline pipeline(world, {.variable_shapes = variable});
        const int stage = pipeline.stage();
        const int next = (stage + 1) % stages;
        const int prev = (stage + stages - 1) % stages;
        const Tensor output = filled({kLarge}, static_cast<float>(stage));
        const Tensor gradient = filled({kLarge}, static_cast<float>(-1 - stage));
        Tensor input({kLarge}), next_gradient({kLarge});
        pipeline.send_forward_backward_recv_forward_backward(
            {.send_next = &output, .send_prev = &gradient, .recv_prev = &input, .recv_next = &next_gradient});
        EXPECT_EQ(first_of(input), static_cast<float>(prev));
        EXPECT_EQ(first_of(next_gradient), static_cast<float>(-1 - next));
        pipeline.send_forward_recv_forward(&gradient, &input);
        EXPECT_EQ(first_of(input), static_cast<float>(-1 - prev));
        pipeline.send_backward_recv_backward(&output, &next_gradient);
        EXPECT_EQ(first_of(next_gradient), static_cast<float>(next));
        // Some stages only receive, some do nothing.
        pipeline.send_forward_recv_forward(stage == 0 ? &output : nullptr, prev == 0 ? &input : nullptr);
        if (prev == 0) {
          EXPECT_EQ(first_of(input), 0.0F);
        }
      });
    }
  }
}

// All messages go from stage 1 to stage 0, which receives them in a different order.
TEST_P(Pipelines, messages_of_different_ways_do_not_meet) {
  for (const bool variable : {true, false}) {
    expect_success(2, [&](Communicator& world) {
      Pipeline pipeline(world, {.variable_shapes = variable});
      const Tensor forward = filled({1}, 1), backward = filled({1}, 2);
      Tensor token = filled({1}, 3), received({1});
      if (pipeline.is_last()) {
        pipeline.send_forward_recv_forward(&forward, nullptr);
        pipeline.send_backward_recv_backward(&backward, nullptr);
        pipeline.broadcast_from_last_to_first(token);
      } else {
        pipeline.broadcast_from_last_to_first(received);
        EXPECT_EQ(first_of(received), 3.0F);
        pipeline.send_backward_recv_backward(nullptr, &received);
        EXPECT_EQ(first_of(received), 2.0F);
        pipeline.send_forward_recv_forward(nullptr, &received);
        EXPECT_EQ(first_of(received), 1.0F);
      }
    });
  }
}

TEST_P(Pipelines, receivers_take_on_shape_and_type) {
  expect_success(2, [](Communicator& world) {
    Pipeline pipeline(world, {.variable_shapes = true});
    for (const auto& shape : std::vector<Tensor::Shape>{{3, 5, 7}, {}, {0, 4}, {1, 2, 1, 2, 1, 2, 1, 2}}) {
      if (pipeline.is_first()) {
        Tensor sent(shape, DataType::int64);
        std::ranges::fill(sent.values<std::int64_t>(), 42);
        pipeline.send_forward(sent);
      } else {
        Tensor received({9});
        pipeline.recv_forward(received);
        EXPECT_EQ(received.shape(), shape);
        EXPECT_EQ(received.type(), DataType::int64);
        for (const std::int64_t x : received.values<std::int64_t>()) EXPECT_EQ(x, 42);
      }
    }
  });
}

TEST_P(Pipelines, overlap_with_computing) {
  expect_success(2, [](Communicator& world) {
    Pipeline pipeline(world);
    Tensor output = filled({kLarge}, 7);
    Tensor input({kLarge});
    const Work work = pipeline.exchange_async({.send_next = &output, .recv_prev = &input});
    work.wait();
    EXPECT_EQ(first_of(input), 7.0F);
  });
}

TEST_P(Pipelines, the_last_stage_tells_the_others) {
  for (const int stages : {1, 2, 3}) {
    for (const bool variable : {true, false}) {
      expect_success(stages, [&](Communicator& world) {
        Pipeline pipeline(world, {.variable_shapes = variable});
        const Tensor::Shape shape{4, 3};
        const auto room = [&] { return variable ? Tensor({1}) : Tensor(shape); };
        Tensor logits = pipeline.is_last() ? filled(shape, 5) : room();
        pipeline.broadcast_from_last(logits);
        EXPECT_EQ(logits.shape(), shape);
        EXPECT_EQ(first_of(logits), 5.0F);
        Tensor token = pipeline.is_last() ? filled(shape, 6) : room();
        pipeline.broadcast_from_last_to_first(token);
        const bool takes_part = pipeline.is_first() || pipeline.is_last();
        EXPECT_EQ(first_of(token), takes_part ? 6.0F : 0.0F);
      });
    }
  }
}

TEST_P(Pipelines, tensors_and_lists_are_broadcast_whatever_their_size) {
  expect_success(3, [](Communicator& world) {
    Tensor tensor = world.rank() == 1 ? filled({2, 3}, 8) : Tensor();
    broadcast_tensor(world, tensor, 1);
    EXPECT_EQ(tensor.shape(), (Tensor::Shape{2, 3}));
    EXPECT_EQ(first_of(tensor), 8.0F);
    std::vector<std::int64_t> numbers;
    std::vector<float> scores{1};
    if (world.rank() == 2) {
      numbers = {1, -2, 3'000'000'000};
      scores = {};
    }
    broadcast_list(world, numbers, 2);
    broadcast_list(world, scores, 2);
    EXPECT_EQ(numbers, (std::vector<std::int64_t>{1, -2, 3'000'000'000}));
    EXPECT_TRUE(scores.empty());
  });
}

TEST_P(Pipelines, a_neighbour_that_is_not_there_is_an_error_that_says_so) {
  expect_success(2, [](Communicator& world) {
    Pipeline pipeline(world);
    Tensor tensor({1});
    if (pipeline.is_first()) {
      const std::string none = "misuse: QCCL stage 0 of 2, group 'world/dup': pipeline: ";
      EXPECT_EQ(error_of([&] { pipeline.recv_from_prev(tensor); }),
                none + "recv_from_prev: this is the first stage, none comes before it");
      EXPECT_EQ(error_of([&] { pipeline.send_to_prev(tensor); }),
                none + "send_to_prev: this is the first stage, none comes before it");
    } else {
      const std::string none = "misuse: QCCL stage 1 of 2, group 'world/dup': pipeline: ";
      EXPECT_EQ(error_of([&] { pipeline.send_to_next(tensor); }),
                none + "send_to_next: this is the last stage, none comes after it");
      EXPECT_EQ(error_of([&] { pipeline.recv_from_next(tensor); }),
                none + "recv_from_next: this is the last stage, none comes after it");
    }
    run_schedule(pipeline, true);  // goes on
  });
}

TEST_P(Pipelines, a_wrong_size_fails_on_both_sides_and_names_both) {
  const auto failures = run_threads(2, options(), [](Communicator& world) {
    Pipeline pipeline(world);
    if (pipeline.is_first()) pipeline.send_forward(Tensor({3}));
    Tensor four({4});
    if (pipeline.is_last()) pipeline.recv_forward(four);
    pipeline.broadcast_from_last(four);  // a sender may learn of it here
  });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find("3"), std::string::npos) << failure;
    EXPECT_NE(failure.find("4"), std::string::npos) << failure;
  }
}

TEST_P(Pipelines, stages_with_other_options_are_refused_on_all) {
  const auto failures =
      run_threads(3, options(), [](Communicator& world) { Pipeline(world, {.variable_shapes = world.rank() == 1}); });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find("variable_shapes is false on stage 0 and true on stage 1"), std::string::npos) << failure;
  }
}

TEST_P(Pipelines, with_another_compression_are_refused_on_all) {
  const auto failures = run_threads(2, options(), [](Communicator& world) {
    Pipeline(world, {.compression = world.rank() == 1 ? block_int({.bits = 8}) : none()});
  });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find("compression is none on stage 0 and int:bits=8"), std::string::npos) << failure;
  }
}

Tensor wave(std::int64_t count) {
  Tensor tensor({count});
  for (std::int64_t i = 0; i < count; ++i) {
    tensor.values<float>()[static_cast<std::size_t>(i)] = std::sin(static_cast<float>(i));
  }
  return tensor;
}

double distance(const Tensor& left, const Tensor& right) {
  double most = 0;
  for (std::size_t i = 0; i < left.count(); ++i) {
    most = std::max<double>(most, std::fabs(left.values<float>()[i] - right.values<float>()[i]));
  }
  return most;
}

TEST_P(Pipelines, compress_floats_in_both_directions_and_leave_other_types_alone) {
  for (const bool variable : {true, false}) {
    expect_success(3, [&](Communicator& world) {
      Pipeline pipeline(world, {.variable_shapes = variable, .compression = block_int({.bits = 8})});
      const Tensor sent = wave(kLarge);
      const auto bytes_before = world.traffic().payload_bytes_sent;
      Tensor input({kLarge}), gradient({kLarge});
      pipeline.send_forward_backward_recv_forward_backward(
          {.send_next = &sent, .send_prev = &sent, .recv_prev = &input, .recv_next = &gradient});
      EXPECT_LT(world.traffic().payload_bytes_sent - bytes_before, std::uint64_t{kLarge} * 2 * 4 / 3);
      for (const Tensor& received : {input, gradient}) {
        EXPECT_LT(distance(received, sent), 0.005);
        EXPECT_GT(distance(received, sent), 0);
      }
      Tensor tokens({kLarge}, DataType::int64), received({kLarge}, DataType::int64);
      std::ranges::fill(tokens.values<std::int64_t>(), 1234567890123);
      pipeline.send_forward_recv_forward(&tokens, &received);
      EXPECT_TRUE(std::ranges::equal(received.values<std::int64_t>(), tokens.values<std::int64_t>()));
    });
  }
}

TEST_P(Pipelines, with_error_feedback_send_what_compression_has_left_over) {
  expect_success(2, [](Communicator& world) {
    Pipeline pipeline(world, {.compression = minmax({.bits = 2}), .error_feedback = true});
    constexpr int kSteps = 32;
    for (const std::int64_t count : {1000, 2000}) {  // another count begins anew
      const Tensor sent = wave(count);
      Tensor forward({count}), backward({count});
      Tensor sum({count}), other_sum({count});
      for (int step = 0; step < kSteps; ++step) {
        pipeline.send_forward_backward_recv_forward_backward(
            {.send_next = &sent, .send_prev = &sent, .recv_prev = &forward, .recv_next = &backward});
        for (std::size_t i = 0; i < sum.count(); ++i) {
          sum.values<float>()[i] += forward.values<float>()[i] / kSteps;
          other_sum.values<float>()[i] += backward.values<float>()[i] / kSteps;
        }
      }
      EXPECT_GT(distance(forward, sent), 0.1) << "one message alone";
      EXPECT_LT(distance(sum, sent), 0.05);
      EXPECT_LT(distance(other_sum, sent), 0.05);
    }
  });
}

TEST(PipelineTensors, refuse_impossible_shapes_and_wrong_types) {
  EXPECT_EQ(error_of([] {
              Tensor({2, -1});
            }),
            "invalid_argument: QCCL tensor: the shape [2, -1] of 2 dimensions is impossible");
  EXPECT_NE(error_of([] { Tensor({1LL << 40, 1LL << 40}); }).find("is impossible"), std::string::npos);
  EXPECT_NE(error_of([] { Tensor({1, 1, 1, 1, 1, 1, 1, 1, 1}); }).find("is impossible"), std::string::npos);
  EXPECT_EQ(error_of([] { Tensor({2}).values<double>(); }),
            "invalid_argument: QCCL tensor: its elements are float32, not float64");
}

}  // namespace
}  // namespace qccl::testing
