// `qccl codec`: the codecs of this library, explained and measured.
#pragma once

#include <string>
#include <vector>

namespace qccl::tools {

// Runs the command with the arguments after "codec"; returns the exit code.
int codec_main(const std::vector<std::string>& arguments);

// Its commands, with the arguments after their names.
int codec_list_main(const std::vector<std::string>& arguments);
int codec_show_main(const std::vector<std::string>& arguments);
int codec_bench_main(const std::vector<std::string>& arguments);

inline constexpr int kCodecFailed = 1;
inline constexpr int kCodecUsage = 2;

}  // namespace qccl::tools
