// Pictures: Python scripts with matplotlib, which are parts of the program, draw its reports.
#pragma once

#include <optional>
#include <string>

namespace qccl::tools {

// codec_plot.py, perf_plot.py and log_plot.py: a report (JSON) on standard input, the picture's name as argument.
extern const char* const kCodecPlotScript;
extern const char* const kPerfPlotScript;
extern const char* const kLogPlotScript;

// Why nothing can be drawn, if so; to be asked before what takes long. Takes about half a second.
std::optional<std::string> plot_obstacle();

// Draws the report; what is wrong, if that failed.
std::optional<std::string> draw_plot(const char* script, const std::string& report, const std::string& path);

}  // namespace qccl::tools
