#include "tools/codec/codec_report.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/plot.h"

namespace qccl::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kNameWidth = 38;

Json as_json(const Speed& speed) {
  const auto pair = [](double rate, double of_copy) { return Json{{"GBps", rate}, {"of_memcpy", of_copy}}; };
  return {{"encode", pair(speed.encode, speed.encode_of_copy)},
          {"decode", pair(speed.decode, speed.decode_of_copy)},
          {"decode_add", pair(speed.decode_add, speed.decode_add_of_copy)}};
}

Json as_json(const CodecReport& report) {
  Json object{{"simd", report.simd}, {"codecs", Json::array()}};
  for (const CodecReport::Row& row : report.rows) {
    Json entry{{"name", row.compression.name()}, {"compression", row.compression.to_string()}};
    for (std::size_t i = 0; i < report.data.size(); ++i) {
      const Distortion& distortion = row.distortions[i];
      entry["data"].push_back({{"name", report.data[i].name},
                               {"elements", report.data[i].elements},
                               {"bits", distortion.bits},
                               {"nmse", distortion.nmse},
                               {"max_error", distortion.max_error},
                               {"within_bound", distortion.within_bound}});
    }
    entry["speed"] = row.speed ? as_json(*row.speed) : Json(nullptr);
    object["codecs"].push_back(std::move(entry));
  }
  return object;
}

std::string rate_text(double rate, double of_copy) { return fmt::format("{:>7.1f} ({:.2f})", rate, of_copy); }

}  // namespace

void print_heading(const CodecReport::Data& data) {
  fmt::print("# {}: {} floats\n# {:<{}} {:>8} {:>7} {:>10} {:>9}\n", data.name, data.elements, "codec", kNameWidth - 2,
             "bits", "ratio", "NMSE", "max");
}

void print_row(const Compression& compression, const Distortion& d) {
  fmt::print("{:<{}} {:>8.3f} {:>7.2f} {:>10.3g} {:>9.3g}{}\n", compression.to_string(), kNameWidth, d.bits,
             32 / d.bits, d.nmse, d.max_error, d.within_bound ? "" : " !");
}

void print_speed_heading(const std::string& simd) {
  fmt::print("# GB/s of float32 (times memcpy), kernels: {}\n# {:<{}} {:>14} {:>14} {:>14}\n", simd, "codec",
             kNameWidth - 2, "encode", "decode", "decode-add");
}

void print_row(const Compression& compression, const Speed& speed) {
  fmt::print("{:<{}} {} {} {}\n", compression.to_string(), kNameWidth, rate_text(speed.encode, speed.encode_of_copy),
             rate_text(speed.decode, speed.decode_of_copy), rate_text(speed.decode_add, speed.decode_add_of_copy));
}

std::optional<std::string> write_json(const CodecReport& report, const std::string& path) {
  std::ofstream file(path);
  file << as_json(report).dump(2) << "\n";
  file.close();
  return file ? std::nullopt : std::optional("can't write " + path);
}

std::optional<std::string> draw_plot(const CodecReport& report, const std::string& path) {
  return draw_plot(kCodecPlotScript, as_json(report).dump(), path);
}

}  // namespace qccl::tools
