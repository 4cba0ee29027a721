// The data that codecs are measured on: distributions that gradients resemble, and files of floats.
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
// elements 30 times as large), all of scale 1. The numbers are the same on every machine, except
// for the last bits of its math library.
const std::vector<std::string_view>& synthetic_names();
DataSet synthetic_data(std::string_view name, std::size_t count, std::uint64_t seed);

// Reads a file of raw little-endian float32. InvalidArgument if it can't be read, is empty, ends
// inside a float, or has values that are not finite.
Result<DataSet> read_data(const std::string& path);

}  // namespace qccl::tools
