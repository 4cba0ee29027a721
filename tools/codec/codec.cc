#include "tools/codec/codec.h"

#include <fmt/format.h>

#include <cstdio>

namespace qccl::tools {
namespace {

constexpr const char* kHelp = R"(Codecs: what there is, how it is laid out, how good and how fast it is.

Usage: qccl codec COMMAND [OPTIONS]

Commands:
  list    all codecs with their settings
  show    one codec: layout, bits an element, error bound, source
  bench   error, size and speed of codecs on synthetic data or on a file of floats

'qccl codec COMMAND --help' has the flags and examples of a command.

Examples:
  qccl codec list
  qccl codec show minmax:bits=3
  qccl codec bench --codecs minmax:bits=4 cast --data gradients.f32
)";

}  // namespace

int codec_main(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "help" || command == "--help" || command == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (command == "list") return codec_list_main(rest);
  if (command == "show") return codec_show_main(rest);
  if (command == "bench") return codec_bench_main(rest);
  if (command.empty()) {
    fmt::print(stderr, "{}", kHelp);
  } else {
    fmt::print(stderr, "qccl codec: there is no command '{}'; there are list, show and bench\n", command);
  }
  return kCodecUsage;
}

}  // namespace qccl::tools
