// `qccl key`: makes a key for jobs.
#include <fmt/format.h>

#include <cstdio>

#include "os/secret_file.h"
#include "secure/key.h"
#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr const char* kKeyFooter = R"(
Writes 32 random bytes, as text, to a new file that only you can read. Only processes that have the key can join a job
that has it; see docs/security.md. `qccl run` makes a key for each job by itself: files are for jobs on several hosts.

Example:
  qccl key ~/.qccl-key
  scp ~/.qccl-key node1:                 # the same file on every host
  export QCCL_KEY_FILE=~/.qccl-key       # on each host, before torchrun, mpirun or srun

Exit code: 0; 1 if the file exists or can't be written; 2 for wrong flags.
)";

}  // namespace

int key_main(const std::vector<std::string>& arguments) {
  CommandLine app("Makes a key for jobs, in a file.", "qccl key", "FILE", kKeyFooter);
  std::string path;
  app.add_option("FILE", path, "The file to make")->required();
  if (const auto code = app.read(arguments)) return *code;
  auto text = secure::make_key_text();
  if (text) text->push_back('\n');
  const Status written = text ? os::write_secret_file(path, *text) : Status(text.failure());
  if (text) secure::wipe(*text);
  if (written.ok()) return 0;
  fmt::print(stderr, "qccl key: {}\n", written.error().message);
  return kExitFailed;
}

}  // namespace qccl::tools
