// What codecs are measured on: distributions that gradients resemble, and files of floats.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace qccl::tools {

struct DataSet {
  std::string name;
  std::vector<float> values;
};

// "gauss", "laplace", "t3" (Student's t with 3 degrees of freedom), "outliers" (Gauss, 1 % of the
// elements 30 times as large), all of scale 1; the same numbers on every machine but for the last
// bits of its math library.
const std::vector<std::string_view>& synthetic_names();
DataSet synthetic_data(std::string_view name, std::size_t count, std::uint64_t seed);

// A file of raw little-endian float32. InvalidArgument in words if it can't be read, is empty, not
// whole floats, or has values that are not finite.
Result<DataSet> read_data(const std::string& path);

}  // namespace qccl::tools
