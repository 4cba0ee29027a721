// Calls as data: made once, held, changed, made again, in lists, and asked about, over real shared memory and TCP.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "support/transports.h"

namespace qccl::testing {
namespace {

class Calls : public Transports {};
INSTANTIATE_TEST_SUITE_P(All, Calls, ::testing::Values(TransportChoice::shm, TransportChoice::tcp), transport_name);

constexpr std::size_t kCount = 1000;

std::string error_of(ErrorKind kind, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST_P(Calls, are_made_again_with_one_field_changed) {
  expect_success(3, [](Communicator& comm) {
    std::vector<std::int32_t> values(kCount, comm.rank() + 1), result(kCount);
    CollectiveCall call{.input = values.data(),
                        .output = result.data(),
                        .count = kCount,
                        .type = DataType::int32,
                        .options = {.root = 2}};
    call.collective = Collective::all_reduce;
    comm.run(call);
    EXPECT_EQ(result, std::vector<std::int32_t>(kCount, 6));
    call.options.op = ReduceOp::max;
    comm.post(call).wait();
    EXPECT_EQ(result, std::vector<std::int32_t>(kCount, 3));
    result.assign(kCount, -1);
    call.collective = Collective::reduce;
    comm.run(call);
    EXPECT_EQ(result, std::vector<std::int32_t>(kCount, comm.rank() == 2 ? 3 : -1));
    call = {};
    comm.run(call);  // a barrier
  });
}

// Each collective in its plain form, as data and by name, with the same inputs.
TEST_P(Calls, do_what_the_functions_of_their_names_do) {
  expect_success(3, [](Communicator& comm) {
    std::vector<float> input(3 * kCount);
    std::iota(input.begin(), input.end(), static_cast<float>(1000 * comm.rank()));
    const CallOptions options{.root = 1};
    const auto compare = [&](Collective collective, const std::function<void(float*)>& by_name) {
      std::vector<float> as_data = collective == Collective::broadcast ? input : std::vector<float>(3 * kCount, -1);
      std::vector<float> named = as_data;
      comm.run({collective, input.data(), as_data.data(), kCount, DataType::float32, options});
      by_name(named.data());
      EXPECT_EQ(as_data, named) << to_string(collective);
    };
    const float* const in = input.data();
    constexpr auto kType = DataType::float32;
    compare(Collective::all_reduce, [&](float* out) { comm.all_reduce(in, out, kCount, kType, options); });
    compare(Collective::reduce, [&](float* out) { comm.reduce(in, out, kCount, kType, options); });
    compare(Collective::broadcast, [&](float* out) { comm.broadcast(out, kCount, kType, options); });
    compare(Collective::reduce_scatter, [&](float* out) { comm.reduce_scatter(in, out, kCount, kType, options); });
    compare(Collective::all_gather, [&](float* out) { comm.all_gather(in, out, kCount, kType, options); });
    compare(Collective::gather, [&](float* out) { comm.gather(in, out, kCount, kType, options); });
    compare(Collective::scatter, [&](float* out) { comm.scatter(in, out, kCount, kType, options); });
    compare(Collective::all_to_all, [&](float* out) { comm.all_to_all(in, out, kCount, kType, options); });
    compare(Collective::barrier, [&](float*) { comm.barrier(options); });
  });
}

TEST_P(Calls, with_counts_need_them_only_until_they_are_posted) {
  expect_success(3, [](Communicator& comm) {
    const auto own = static_cast<std::size_t>(comm.rank());
    std::vector<std::int32_t> input(own, comm.rank()), output(3);
    CollectiveCall gather{Collective::all_gather, input.data(), output.data(), 0, DataType::int32};
    std::vector<std::size_t> counts{0, 1, 2};
    gather.counts = counts;
    const Work gathered = comm.post(gather);
    counts.assign(3, 77);
    gathered.wait();
    EXPECT_EQ(output, (std::vector<std::int32_t>{1, 2, 2}));

    // Rank r sends r elements to each rank.
    std::vector<std::int32_t> sent(3 * own, comm.rank());
    std::vector<std::size_t> sends(3, own), receives{0, 1, 2};
    CollectiveCall exchange{Collective::all_to_all, sent.data(), output.data(), 0, DataType::int32};
    exchange.counts = sends;
    exchange.receives = receives;
    output.assign(3, -1);
    const Work exchanged = comm.post(exchange);
    sends.clear();
    receives.clear();
    exchanged.wait();
    EXPECT_EQ(output, (std::vector<std::int32_t>{1, 2, 2}));
  });
}

TEST_P(Calls, with_lists_of_a_wrong_length_are_refused) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> memory(8);
    const std::vector<std::size_t> two(2, 1), three(3, 1);
    CollectiveCall call{Collective::all_to_all, memory.data(), memory.data() + 4, 0, DataType::float32};
    const auto refused = [&](Counts counts, Counts receives) {
      call.counts = counts;
      call.receives = receives;
      return error_of(ErrorKind::invalid_argument, [&] { comm.run(call); });
    };
    EXPECT_NE(refused(three, two).find("3 counts where a group of 2 needs 2"), std::string::npos);
    EXPECT_NE(refused(two, three).find("3 counts where a group of 2 needs 2"), std::string::npos);
    EXPECT_NE(refused(two, {}).find("0 counts where a group of 2 needs 2"), std::string::npos);
    call.collective = Collective::all_gather;
    EXPECT_NE(refused({}, {}).find("0 counts where a group of 2 needs 2"), std::string::npos);
    comm.barrier();
  });
}

TEST_P(Calls, of_different_collectives_are_one_list) {
  expect_success(2, [](Communicator& comm) {
    std::vector<float> sum(kCount, 1.0F), gathered(2 * kCount), own(kCount, static_cast<float>(comm.rank()));
    std::vector<CollectiveCall> calls{
        {Collective::all_reduce, sum.data(), sum.data(), kCount, DataType::float32},
        {Collective::all_gather, own.data(), gathered.data(), kCount, DataType::float32},
        {},
    };
    comm.post(calls).wait();
    EXPECT_EQ(sum, std::vector<float>(kCount, 2.0F));
    EXPECT_EQ(gathered.front(), 0.0F);
    EXPECT_EQ(gathered.back(), 1.0F);
    comm.run(calls);
    EXPECT_EQ(sum, std::vector<float>(kCount, 4.0F));
    calls.back().options.root = 7;
    calls.back().collective = Collective::broadcast;
    error_of(ErrorKind::invalid_argument, [&] { comm.post(calls); });
    EXPECT_EQ(sum, std::vector<float>(kCount, 4.0F));
    comm.post(std::span<const CollectiveCall>()).wait();
  });
}

TEST_P(Calls, are_estimated_without_buffers) {
  expect_success(2, [](Communicator& comm) {
    const Traffic before = comm.traffic();
    CollectiveCall call{.collective = Collective::all_reduce, .count = 1 << 20, .type = DataType::float32};
    std::vector<float> data(1 << 20);
    comm.group_start();
    comm.all_reduce_async(data);
    EXPECT_DOUBLE_EQ(comm.estimate(call), comm.group_estimate());
    EXPECT_EQ(comm.choice(call).algorithm,
              comm.effective_algorithm(Collective::all_reduce, 1 << 20, DataType::float32));
    call.options.compression = minmax({.bits = 4});
    EXPECT_EQ(comm.choice(call).compression, minmax({.bits = 4}));
    EXPECT_NE(comm.explain(call), "");
    call.options.algorithm = Algorithm::ring;
    EXPECT_EQ(comm.choice(call).algorithm, Algorithm::ring);
    EXPECT_NE(comm.explain(call).find("asked for"), std::string::npos);
    call.type = DataType::int32;
    error_of(ErrorKind::unsupported, [&] { comm.estimate(call); });
    error_of(ErrorKind::unsupported, [&] { comm.choice(call); });
    EXPECT_EQ(comm.traffic().payload_bytes_sent, before.payload_bytes_sent);
    comm.barrier();
  });
}

TEST_P(Calls, can_be_messages) {
  expect_success(2, [](Communicator& comm) {
    const int other = 1 - comm.rank();
    const std::vector<float> sent(kCount, static_cast<float>(comm.rank()));
    std::vector<float> received(kCount);
    const MessageCall send{.input = sent.data(), .count = kCount, .type = DataType::float32, .peer = other};
    MessageCall recv{.output = received.data(), .incoming = true, .count = kCount, .type = DataType::float32};
    recv.peer = kAnySource;
    const Work out = comm.post(send);
    EXPECT_EQ(comm.run(recv), other);
    out.wait();
    EXPECT_EQ(received, std::vector<float>(kCount, static_cast<float>(other)));
    received.assign(kCount, -1);
    const std::vector<MessageCall> both{send, recv};
    EXPECT_EQ(comm.run(both), other);
    EXPECT_EQ(received, std::vector<float>(kCount, static_cast<float>(other)));
  });
}

}  // namespace
}  // namespace qccl::testing
