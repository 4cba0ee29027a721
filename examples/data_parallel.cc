// Trains a small network with compressed gradients. Every rank has its own batches, and a different number of them.
// Plain C++ and QCCL, nothing else.
//
//   build/qccl run -n 4 -- build/examples/data_parallel
//   build/qccl run -n 4 -- build/examples/data_parallel --batches 1,7,30,0 --policy none
//   build/examples/data_parallel --as 4              one process with the batches of four ranks: the same result
#include <qccl/qccl.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <sstream>
#include <string>

namespace {

constexpr std::size_t kInputs = 16, kHidden = 1024, kBatch = 16;
constexpr int kBatches = 240;  // default number for all ranks together
constexpr float kRate = 0.05F;

// y = v tanh(W x + b) + c, against a fixed function of x.
struct Network {
  std::vector<float> hidden = std::vector<float>(kHidden * kInputs), bias = std::vector<float>(kHidden),
                     out = std::vector<float>(kHidden), offset = std::vector<float>(1);
  std::vector<float> hidden_gradient = hidden, bias_gradient = bias, out_gradient = out, offset_gradient = offset;

  explicit Network(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& w : hidden) w = normal(random) / std::sqrt(static_cast<float>(kInputs));
    for (float& w : out) w = normal(random) / std::sqrt(static_cast<float>(kHidden));
  }

  std::vector<qccl::train::Parameter> parameters() {
    return {{"hidden.weight", hidden, hidden_gradient, 2},
            {"hidden.bias", bias, bias_gradient, 1},
            {"out.weight", out, out_gradient, 1},
            {"out.bias", offset, offset_gradient, 1}};
  }

  // Computes the gradients of a batch and returns its mean loss. Calls `ready` for each parameter whose gradient is
  // complete.
  template <class Ready>
  float backward(std::mt19937& random, const Ready& ready) {
    for (auto* gradient : gradients()) std::fill(gradient->begin(), gradient->end(), 0.0F);
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> x(kInputs), h(kHidden);
    float loss = 0;
    for (std::size_t sample = 0; sample < kBatch; ++sample) {
      for (float& value : x) value = uniform(random);
      const float target = std::sin(3 * x[0]) * x[1] + x[2] * x[3];
      float y = offset[0];
      for (std::size_t j = 0; j < kHidden; ++j) {
        float sum = bias[j];
        for (std::size_t i = 0; i < kInputs; ++i) sum += hidden[j * kInputs + i] * x[i];
        h[j] = std::tanh(sum);
        y += out[j] * h[j];
      }
      const float error = y - target;
      loss += error * error / kBatch;
      const float slope = 2 * error / kBatch;
      offset_gradient[0] += slope;
      for (std::size_t j = 0; j < kHidden; ++j) {
        out_gradient[j] += slope * h[j];
        const float inner = slope * out[j] * (1 - h[j] * h[j]);
        bias_gradient[j] += inner;
        for (std::size_t i = 0; i < kInputs; ++i) hidden_gradient[j * kInputs + i] += inner * x[i];
      }
    }
    for (std::size_t i = 4; i-- > 0;) ready(i);
    return loss;
  }

  std::vector<std::vector<float>*> gradients() {
    return {&hidden_gradient, &bias_gradient, &out_gradient, &offset_gradient};
  }

  void descend() {
    const auto step = [](std::vector<float>& weights, const std::vector<float>& gradient) {
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= kRate * gradient[i];
    };
    step(hidden, hidden_gradient);
    step(bias, bias_gradient);
    step(out, out_gradient);
    step(offset, offset_gradient);
  }
};

struct Options {
  std::string policy = "minmax:bits=8";
  std::vector<int> batches{};  // of each rank; empty: the default
  int as = 0;
};

// The rank's number from --batches. By default rank r gets r + 1 shares of all batches.
int batches_of(int rank, int world, const Options& options) {
  const auto index = static_cast<std::size_t>(rank);
  if (!options.batches.empty()) return index < options.batches.size() ? options.batches[index] : 0;
  return kBatches * 2 * (rank + 1) / (world * (world + 1));
}

float validate(Network& network) {
  std::mt19937 random(12345);
  float loss = 0;
  constexpr int kRounds = 40;
  for (int i = 0; i < kRounds; ++i) loss += network.backward(random, [](std::size_t) {}) / kRounds;
  return loss;
}

// Makes the steps that all ranks would make together, one at a time.
void train_alone(Network& network, const Options& options) {
  const int ranks = options.as;
  std::vector<std::mt19937> random;
  int steps = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    random.emplace_back(static_cast<unsigned>(100 + rank));
    steps = std::max(steps, batches_of(rank, ranks, options));
  }
  for (int step = 0; step < steps; ++step) {
    std::vector<std::vector<float>> sums(4);
    for (int rank = 0; rank < ranks; ++rank) {
      if (step >= batches_of(rank, ranks, options)) continue;
      network.backward(random[static_cast<std::size_t>(rank)], [](std::size_t) {});
      for (std::size_t i = 0; i < 4; ++i) {
        const std::vector<float>& gradient = *network.gradients()[i];
        sums[i].resize(gradient.size());
        for (std::size_t j = 0; j < gradient.size(); ++j) sums[i][j] += gradient[j] / static_cast<float>(ranks);
      }
    }
    for (std::size_t i = 0; i < 4; ++i) *network.gradients()[i] = sums[i];
    network.descend();
  }
}

// Returns false unless the whole text is a number of at least `least`.
bool read(const std::string& text, int least, int& number) {
  const char* end = text.data() + text.size();
  const auto [read_to, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && read_to == end && number >= least;
}

// Returns false for any other argument.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string value = argv[i + 1];
    if (std::strcmp(argv[i], "--policy") == 0) {
      options.policy = value;
    } else if (std::strcmp(argv[i], "--as") == 0) {
      if (!read(value, 1, options.as)) return false;
    } else if (std::strcmp(argv[i], "--batches") == 0) {
      std::istringstream list(value);
      for (std::string number; std::getline(list, number, ',');) {
        if (!read(number, 0, options.batches.emplace_back())) return false;
      }
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

void train(const Options& options) {
  qccl::Communicator world = qccl::init();
  Network network(static_cast<unsigned>(world.rank()));  // DataParallel gives all ranks rank 0's parameters
  qccl::train::DataParallel model(world, network.parameters(), {.policy = qccl::Policy::parse(options.policy)});
  std::mt19937 random(static_cast<unsigned>(100 + world.rank()));
  const int batches = batches_of(world.rank(), world.size(), options);
  qccl::train::Join join(model);
  for (int batch = 0; batch < batches; ++batch) {
    join.next();
    network.backward(random, [&](std::size_t parameter) { model.ready(parameter); });
    model.finish();
    network.descend();
  }
  join.finish();
  const float loss = validate(network);
  for (int rank = 0; rank < world.size(); ++rank) {
    world.barrier();
    if (rank == world.rank()) {
      std::printf("rank %d: %d batches, loss %.9g\n", rank, batches, static_cast<double>(loss));
      std::fflush(stdout);
    }
  }
  world.close();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: %s [--batches N,N,...] [--policy POLICY] [--as RANKS]\n", argv[0]);
    return 2;
  }
  if (options.as > 0) {
    Network network(0);
    train_alone(network, options);
    std::printf("one process as %d ranks: loss %.9g\n", options.as, static_cast<double>(validate(network)));
    return 0;
  }
  try {
    train(options);
    return 0;
  } catch (const qccl::Error& error) {
    std::fprintf(stderr, "data_parallel: %s\n", error.what());
    return 1;
  }
}
