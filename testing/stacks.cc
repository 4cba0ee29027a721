#include "stacks.h"

#include <elf.h>
#include <execinfo.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "packet.h"

namespace qccl::testing {
namespace {

constexpr int kMaxFrames = 64;
constexpr int kHandlerFrames = 2;  // the handler's own, and the kernel's trampoline
constexpr std::array kCrashSignals = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};

int handler_channel = -1;  // global, because a signal handler gets no argument to find it by

// Async-signal-safe: no memory is allocated, nothing locked.
void send_stack(PacketKind kind, long number) {
  std::array<void*, kMaxFrames> frames;
  const int count = ::backtrace(frames.data(), kMaxFrames);
  std::array<char, sizeof(frames) + 64> packet;
  char* at = packet.data();
  *at++ = static_cast<char>(kind);
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  const auto append = [&](const void* data, std::size_t size) {
    const auto length = static_cast<std::uint32_t>(size);
    std::memcpy(at, &length, sizeof(length));
    std::memcpy(at + sizeof(length), data, size);
    at += sizeof(length) + size;
  };
  append(digits.data(), static_cast<std::size_t>(end - digits.data()));
  append(frames.data(), static_cast<std::size_t>(count) * sizeof(void*));
  static_cast<void>(::send(handler_channel, packet.data(), static_cast<std::size_t>(at - packet.data()), MSG_NOSIGNAL));
}

void on_stack_signal(int) { send_stack(PacketKind::stack, ::syscall(SYS_gettid)); }

void on_crash(int signal) {
  send_stack(PacketKind::crash, signal);
  ::raise(signal);  // takes the default action once this handler returns
}

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

bool is_default(int signal) {
  struct sigaction present {};
  ::sigaction(signal, nullptr, &present);
  return (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL;
}

// Position-independent files are linked for address 0, others for the address they are mapped at.
bool is_position_independent(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  return !file || header.e_type == ET_DYN;
}

std::string quoted(const std::string& path) {
  std::string text = "'";
  for (const char letter : path) text += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return text + "'";
}

struct Frame {
  const Module* module = nullptr;
  std::uintptr_t offset = 0;
  std::string name{};
};

// Names the frames of one module, as far as addr2line knows them.
void name_frames(const Module& module, std::vector<Frame*>& frames) {
  std::ostringstream command;
  command << "addr2line -Cfpse " << quoted(module.path) << std::hex;
  for (const Frame* frame : frames) command << " 0x" << frame->offset;
  command << " 2>/dev/null";
  FILE* lines = ::popen(command.str().c_str(), "r");
  if (lines == nullptr) return;
  std::array<char, 1000> line;
  for (Frame* frame : frames) {
    if (std::fgets(line.data(), line.size(), lines) == nullptr) break;
    const std::string text(line.data(), std::strcspn(line.data(), "\n"));
    if (!text.starts_with("??")) frame->name = text;
  }
  ::pclose(lines);
}

std::vector<Frame> find_frames(const std::vector<Module>& modules, std::string_view addresses) {
  std::vector<Frame> frames;
  for (std::size_t at = 0; at + sizeof(std::uintptr_t) <= addresses.size(); at += sizeof(std::uintptr_t)) {
    std::uintptr_t address = 0;
    std::memcpy(&address, addresses.data() + at, sizeof(address));
    --address;  // return addresses point behind the call
    const auto hit = std::find_if(modules.begin(), modules.end(), [&](const Module& module) {
      return module.begin <= address && address < module.end;
    });
    if (hit == modules.end()) {
      frames.push_back({nullptr, address});
    } else {
      frames.push_back({&*hit, address - hit->base});
    }
  }
  frames.erase(frames.begin(), frames.begin() + std::min<std::ptrdiff_t>(kHandlerFrames, std::ssize(frames)));
  return frames;
}

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

}  // namespace

int stack_signal() { return SIGRTMAX - 3; }

void install_stack_handlers(int channel) {
  handler_channel = channel;
  std::array<void*, 2> first;
  ::backtrace(first.data(), first.size());  // loads its libraries now, so that the handlers do not
  // After a stack overflow the thread's stack has no room for the handler.
  static std::array<char, 64 << 10> own_stack;
  const stack_t stack{.ss_sp = own_stack.data(), .ss_flags = 0, .ss_size = own_stack.size()};
  stack_t present{};
  ::sigaltstack(nullptr, &present);
  if ((present.ss_flags & SS_DISABLE) != 0) ::sigaltstack(&stack, nullptr);
  handle(stack_signal(), on_stack_signal, SA_RESTART);
  for (const int signal : kCrashSignals) {
    if (is_default(signal)) handle(signal, on_crash, static_cast<int>(SA_RESETHAND | SA_ONSTACK));
  }
}

std::vector<Module> modules_of(pid_t process) {
  std::vector<Module> modules;
  std::map<std::string, std::uintptr_t> bases;
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    Module module;
    std::uintptr_t offset = 0;
    char dash = 0;
    std::string flags, device, inode;
    words >> std::hex >> module.begin >> dash >> module.end >> flags >> offset >> device >> inode >> module.path;
    if (!module.path.starts_with("/")) continue;
    const auto [base, is_first] = bases.try_emplace(module.path, module.begin - offset);
    if (is_first && !is_position_independent(module.path)) base->second = 0;
    module.base = base->second;
    modules.push_back(std::move(module));
  }
  return modules;
}

std::string describe_stack(const std::vector<Module>& modules, std::string_view addresses) {
  std::vector<Frame> frames = find_frames(modules, addresses);
  std::map<std::string, std::vector<Frame*>> by_file;
  for (Frame& frame : frames) {
    if (frame.module != nullptr) by_file[frame.module->path].push_back(&frame);
  }
  for (auto& [path, group] : by_file) name_frames(*group.front()->module, group);
  std::ostringstream text;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const Frame& frame = frames[i];
    text << "      #" << i << " ";
    if (!frame.name.empty()) {
      text << frame.name;
    } else {
      text << (frame.module != nullptr ? frame.module->path : "?") << "+0x" << std::hex << frame.offset << std::dec;
    }
    text << "\n";
  }
  return text.str();
}

std::vector<Thread> threads_of(pid_t process) {
  std::vector<Thread> threads;
  std::error_code gone;
  const std::string folder = "/proc/" + std::to_string(process) + "/task";
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
    Thread thread;
    thread.id = std::atoi(entry.path().filename().c_str());
    thread.name = first_line(entry.path() / "comm");
    const std::string stat = first_line(entry.path() / "stat");
    const auto state = stat.rfind(')');
    if (state != std::string::npos && state + 2 < stat.size()) thread.state = stat[state + 2];
    const std::string waits_in = first_line(entry.path() / "wchan");
    if (waits_in != "0") thread.waits_in = waits_in;
    threads.push_back(std::move(thread));
  }
  std::sort(threads.begin(), threads.end(), [](const Thread& a, const Thread& b) { return a.id < b.id; });
  return threads;
}

}  // namespace qccl::testing
