// The results of `qccl codec bench`: as a table, as JSON and as a picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/codec/codec_measure.h"

namespace qccl::tools {

struct CodecReport {
  struct Data {
    std::string name;
    std::size_t elements = 0;
  };
  struct Row {
    Compression compression;
    std::vector<Distortion> distortions{};  // by data set
    std::optional<Speed> speed{};
  };
  std::string simd{};
  std::vector<Data> data{};
  std::vector<Row> rows{};
};

// Print tables row by row as results arrive: one for each data set, one of the speeds.
void print_heading(const CodecReport::Data& data);
void print_row(const Compression& compression, const Distortion& distortion);
void print_speed_heading(const std::string& simd);
void print_row(const Compression& compression, const Speed& speed);

// Returns what went wrong, or nothing.
std::optional<std::string> write_json(const CodecReport& report, const std::string& path);
// Draws with matplotlib, in the Python of the checkout that the program was built in, else in the
// python3 in PATH. Returns what went wrong, or nothing.
std::optional<std::string> draw_plot(const CodecReport& report, const std::string& path);

}  // namespace qccl::tools
