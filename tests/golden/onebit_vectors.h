// The results of DeepSpeed's own compressed all-reduce (0.19.6-dev, runtime/comm, on real processes): three steps of
// float32 input a[i] = ((7 i + 3 rank) mod 11 - 5) / 4, the same every step, errors zero before the first. The norms of
// the errors are from an independent implementation that reproduced all of the outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qccl::testing {

struct OnebitStep {
  std::vector<double> scales;  // |output| of each chunk that has elements
  std::string signs;           // of the output, 1 for +, packed like numpy.packbits(), in hexadecimal; or the beginning
  std::uint32_t crc32 = 0;     // of all the bytes of signs, if `signs` is only their beginning
};

struct OnebitCase {
  int world;
  std::size_t count;
  std::size_t padded;
  std::vector<OnebitStep> steps;
  std::vector<double> worker_norms;  // after the last step, by rank; empty: unknown
  std::vector<double> server_norms;
};

inline const std::vector<OnebitCase>& onebit_cases() {
  static const std::vector<OnebitCase> cases = {
      {1, 16, 16, {{{0.8125}, "5b4b"}, {{1.00778222}, "526a"}, {{1.1504662}, "3b47"}}, {}, {}},
      {2,
       16,
       16,
       {{{0.571114659, 0.571114659}, "5b4b"},
        {{0.717092454, 0.893003285}, "4929"},
        {{0.659547687, 0.678448617}, "7f4f"}},
       {2.695385, 2.539457},
       {1.104313, 1.183471}},
      {2,
       20,
       32,
       {{{0.442493856, 0.585223436}, "5b4b60"},
        {{0.731009245, 0.80031383}, "492920"},
        {{0.556284964, 0.788367152}, "7f4fe0"}},
       {3.996271, 3.854454},
       {1.175316, 1.076615}},
      {3,
       24,
       24,
       {{{0.268621832, 0.268621832, 0.268621832}, "7d2fa5"},
        {{0.472102791, 0.569672406, 0.569672406}, "42a855"},
        {{0.619398415, 0.797696114, 0.678655207}, "3d67ac"}},
       {3.218253, 3.218253, 3.134192},
       {0.807317, 1.365311, 1.139274}},
      {3,
       25,
       48,
       {{{0.190482005, 0.403120875}, "7d2fa580"},
        {{0.476086527, 0.616062641}, "42a85500"},
        {{0.517212391, 0.63185674}, "7d2fac80"}},
       {5.033472, 4.980130, 4.731418},
       {0.751835, 1.012080, 0.000000}},
      {4,
       64,
       64,
       {{{0.199212834, 0.140902907, 0.199218228, 0.140895262}, "dbdb7b6f6dedbdb7"},
        {{0.437175572, 0.462880403, 0.466691434, 0.437157989}, "52aa554aa9552aa5"},
        {{0.414971292, 0.453615665, 0.439032346, 0.429742038}, "bd57aaf55eabd57a"}},
       {5.157053, 5.104815, 5.104815, 5.157053},
       {0.763425, 0.755610, 0.765693, 0.760433}},
      {5,
       1000,
       1000,
       {{{0.209962428, 0.207562745, 0.207564563, 0.207564577, 0.207564563}, "5b6b6d6dadb5b6b6", 0x664341dd},
        {{0.39953807, 0.397514075, 0.398974389, 0.40139088, 0.397755414}, "4aa9552aa554aa95", 0xbe8270e7},
        {{0.464203656, 0.464669228, 0.465034783, 0.466561437, 0.469947159}, "f55eabd57aaf55ea", 0xb195c6a1}},
       {},
       {}},
  };
  return cases;
}

}  // namespace qccl::testing
