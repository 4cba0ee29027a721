// A rank of test_outer_in_cpp.py: the same training as there, in C++.
//
//   qccl run -n 2 -- outer_rank FOLDER COMPRESSION
//
// Writes FOLDER/RANK.parameters, FOLDER/RANK.state (OuterLoop::save()) and FOLDER/RANK.sent, the bytes that each round
// sent.
#include <qccl/qccl.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <span>
#include <string>
#include <vector>

namespace {

constexpr int kLayers = 3;
constexpr std::size_t kWeights = 90 * 100, kBiases = 90;
constexpr int kSteps = 19;

struct Parameter {
  std::string name;
  std::vector<float> values;
};

std::vector<Parameter> begin() {
  std::vector<Parameter> parameters;
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string block = "blocks." + std::to_string(layer);
    parameters.push_back({block + ".weight", std::vector<float>(kWeights)});
    parameters.push_back({block + ".bias", std::vector<float>(kBiases)});
  }
  for (Parameter& parameter : parameters) {
    for (std::size_t i = 0; i < parameter.values.size(); ++i) {
      parameter.values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 64;
    }
  }
  return parameters;
}

// Every change is exact in float32, so that the sums are those of any other program.
void train(std::vector<Parameter>& parameters, std::size_t rank, std::size_t step) {
  for (std::size_t number = 0; number < parameters.size(); ++number) {
    auto& values = parameters[number].values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t drawn = (i * 7919 + step * 104'729 + rank * 1'299'709 + number * 17) % 2001;
      values[i] += static_cast<float>(static_cast<int>(drawn) - 1000) / 65536;
    }
  }
}

template <class T>
void write(const std::string& path, std::span<const T> values) {
  std::ofstream(path, std::ios::binary | std::ios::app)
      .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
}

void run(const std::string& folder, const std::string& compression) {
  qccl::Communicator world = qccl::init();
  std::vector<Parameter> parameters = begin();
  std::vector<qccl::train::OuterParameter> list;
  for (Parameter& each : parameters) list.push_back(qccl::train::OuterParameter::of(each.name, each.values));
  qccl::train::OuterLoop outer(world, list,
                               {.every = 4,
                                .fragments = 2,
                                .delay = 1,
                                .blend = 0.25,
                                .compression = qccl::Compression::parse(compression),
                                .error_decay = 0.9});
  for (std::size_t step = 0; step < kSteps; ++step) {
    train(parameters, static_cast<std::size_t>(world.rank()), step);
    outer.step();
  }
  const std::string path = folder + "/" + std::to_string(world.rank());
  for (const Parameter& each : parameters) write(path + ".parameters", std::span<const float>(each.values));
  write(path + ".state", std::span<const std::byte>(outer.save()));
  for (const auto& round : outer.history()) write(path + ".sent", std::span<const std::uint64_t>(&round.bytes, 1));
  outer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    run(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
