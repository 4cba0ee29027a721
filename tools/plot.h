// Pictures: Python scripts with matplotlib, which are parts of the program, draw its reports.
#pragma once

#include <optional>
#include <string>

namespace qccl::tools {

// codec_plot.py, perf_plot.py and log_plot.py: a report (JSON) on standard input, the picture's name as argument.
extern const char* const kCodecPlotScript;
extern const char* const kPerfPlotScript;
extern const char* const kLogPlotScript;

// Endings that a picture's name may have, for help texts.
inline constexpr const char* kPictureEndings = ".png, .svg or .pdf";

// Why no picture can have that name, if so: another ending, no such folder, a folder itself. To be asked before what
// takes long, like the next one.
std::optional<std::string> picture_name_problem(const std::string& path);

// Why nothing can be drawn, if so. Takes about half a second.
std::optional<std::string> plot_obstacle();

// Draws the report; if that failed, what, after Python has printed why.
std::optional<std::string> draw_plot(const char* script, const std::string& report, const std::string& path);

}  // namespace qccl::tools
