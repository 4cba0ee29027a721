// Pictures: a Python script that is compiled into the program draws its reports with matplotlib.
#pragma once

#include <optional>
#include <string>

namespace qccl::tools {

// Endings that a picture's name may have, for help texts.
inline constexpr const char* kPictureEndings = ".png, .svg or .pdf";

// If no picture can have that name, the reason: a wrong ending, a missing folder, or the name of a folder. Call this
// and plot_problem() before work that takes long.
std::optional<std::string> picture_name_problem(const std::string& path);

// If nothing can be drawn, the reason. Takes about half a second.
std::optional<std::string> plot_problem();

// Draws the report, JSON of this kind: "codec", "perf" or "log". On failure Python prints the cause, and this returns a
// message that names the picture.
std::optional<std::string> draw_plot(const char* kind, const std::string& report, const std::string& path);

}  // namespace qccl::tools
