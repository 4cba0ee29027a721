// What `qccl codec bench` found: as a table, as JSON and as a picture.
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

// Tables, row by row as they become known: one for each data set, one of the speeds.
void print_heading(const CodecReport::Data& data);
void print_row(const Compression& compression, const Distortion& distortion);
void print_speed_heading(const std::string& simd);
void print_row(const Compression& compression, const Speed& speed);

// What went wrong, or nothing.
std::optional<std::string> write_json(const CodecReport& report, const std::string& path);
// By matplotlib, in a Python that has it: that of the checkout the program was built in, else the
// python3 in PATH.
std::optional<std::string> draw_plot(const CodecReport& report, const std::string& path);

}  // namespace qccl::tools
