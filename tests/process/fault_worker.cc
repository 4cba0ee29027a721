// A rank for tests of failures: joins the job from the environment, makes calls, and prints one
// line for each thing the test waits for. The test kills, stops and misleads it from outside.
//
//   fault_worker --loop [--count N]        all_reduce for ever; READY after the first
//   fault_worker --call CALL [--call ...]  these calls in order, then a barrier
//     CALL: all_reduce:COUNT:TYPE:SPEC, broadcast:COUNT:ROOT, barrier
//   --fork-child    a forked child that sleeps with all that it inherited
//   --timeout-ms N  of each operation
//   --wait-stdin    waits for a line on standard input before the calls
//
// Prints: JOINED, READY, CHILD pid, DONE, or ERROR <kind> <peer> <sequence> <message>.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "qccl/qccl.h"

namespace {

struct Arguments {
  bool loop = false;
  bool fork_child = false;
  bool wait_stdin = false;
  std::size_t count = 1 << 20;
  long timeout_ms = 0;
  std::vector<std::string> calls;
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const auto value = [&] { return std::string(argv[++i]); };
    if (flag == "--loop") arguments.loop = true;
    if (flag == "--fork-child") arguments.fork_child = true;
    if (flag == "--wait-stdin") arguments.wait_stdin = true;
    if (flag == "--count") arguments.count = std::stoul(value());
    if (flag == "--timeout-ms") arguments.timeout_ms = std::stol(value());
    if (flag == "--call") arguments.calls.push_back(value());
  }
  return arguments;
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ':') && parts.size() < 3;) parts.push_back(part);
  if (const auto rest = text.find("minmax"); rest != std::string::npos) parts.push_back(text.substr(rest));
  return parts;
}

void make_call(qccl::Communicator& comm, const std::string& text, const qccl::CallOptions& base) {
  const auto parts = split(text);
  qccl::CallOptions options = base;
  if (parts[0] == "barrier") return comm.barrier(options);
  const std::size_t count = std::stoul(parts[1]);
  std::vector<double> buffer(count + 1);
  if (parts[0] == "broadcast") {
    options.root = std::stoi(parts[2]);
    return comm.broadcast(buffer.data(), count, qccl::DataType::float32, options);
  }
  if (parts.size() > 3) options.compression = qccl::Compression::parse(parts[3]);
  const auto type = parts[2] == "float64" ? qccl::DataType::float64 : qccl::DataType::float32;
  comm.all_reduce(buffer.data(), buffer.data(), count, type, options);
}

void work(qccl::Communicator& comm, const Arguments& arguments) {
  qccl::CallOptions options;
  if (arguments.timeout_ms > 0) options.timeout = qccl::Milliseconds(arguments.timeout_ms);
  for (const auto& call : arguments.calls) make_call(comm, call, options);
  if (!arguments.loop) return comm.barrier(options);
  std::vector<float> buffer(arguments.count, 1.0F);
  for (bool first = true;; first = false) {
    comm.all_reduce(buffer, options);
    if (first) say("READY");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  try {
    auto comm = qccl::init();
    say("JOINED");
    if (arguments.fork_child) {
      const pid_t child = fork();
      if (child == 0) {
        pause();
        _exit(0);
      }
      say("CHILD " + std::to_string(child));
    }
    if (arguments.wait_stdin) std::getchar();
    work(comm, arguments);
    say("DONE");
  } catch (const qccl::Error& error) {
    const qccl::ErrorInfo& info = error.info();
    say(std::string("ERROR ") + qccl::to_string(info.kind) + " " + std::to_string(info.peer) + " " +
        std::to_string(info.sequence) + " " + info.message);
  }
  return 0;
}
