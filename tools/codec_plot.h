// codec_plot.py as the program carries it.
#pragma once

namespace qccl::tools {

extern const char* const kCodecPlotScript;

}  // namespace qccl::tools
