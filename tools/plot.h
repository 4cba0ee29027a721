// Pictures: Python scripts that are compiled into the program draw its reports with matplotlib.
#pragma once

#include <optional>
#include <string>

namespace qccl::tools {

// codec_plot.py, perf_plot.py and log_plot.py. Each takes a report (JSON) on standard input and the picture's name as
// argument.
extern const char* const kCodecPlotScript;
extern const char* const kPerfPlotScript;
extern const char* const kLogPlotScript;

// Endings that a picture's name may have, for help texts.
inline constexpr const char* kPictureEndings = ".png, .svg or .pdf";

// If no picture can have that name, the reason: a wrong ending, a missing folder, or the name of a folder. Call this
// and plot_obstacle() before work that takes long.
std::optional<std::string> picture_name_problem(const std::string& path);

// If nothing can be drawn, the reason. Takes about half a second.
std::optional<std::string> plot_obstacle();

// Draws the report. On failure Python prints the cause, and this returns a message that names the picture.
std::optional<std::string> draw_plot(const char* script, const std::string& report, const std::string& path);

}  // namespace qccl::tools
