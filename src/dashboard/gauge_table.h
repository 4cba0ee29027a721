// What compressing each parameter costs, over the steps of a job. Bounded in parameters and points.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "qccl/log.h"

namespace qccl::dashboard {

class GaugeTable {
 public:
  struct Parameter {
    int rank = 0;  // whose values these are: the lowest rank that measured it
    GaugeRecord last;
    std::uint64_t stride = 1;  // every so many-th value is in `history`
    std::uint64_t seen = 0;
    std::vector<GaugeRecord> history;  // names and compressions empty
    bool piles_up() const { return last.residual > kPiledUp; }
  };

  // From here on qccl.ddp.State warns, too: gradients that were not sent outweigh those of two steps.
  static constexpr double kPiledUp = 2;
  static constexpr std::size_t kMostParameters = 512;
  static constexpr std::size_t kMostPoints = 96;

  // Returns whether the parameter's residual begins to pile up.
  bool add(int rank, const GaugeRecord& gauge);
  const std::map<std::string, Parameter>& parameters() const { return parameters_; }
  std::uint64_t left_out() const { return left_out_; }  // values of parameters beyond kMostParameters

 private:
  std::map<std::string, Parameter> parameters_;
  std::uint64_t left_out_ = 0;
};

}  // namespace qccl::dashboard
