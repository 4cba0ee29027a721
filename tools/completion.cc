// `qccl completion SHELL`: a script that asks this program, at each press of Tab, which words may follow. The commands
// answer from their own flags (CommandLine), so there is no list to keep.
#include <fmt/format.h>

#include <cstdio>

#include "tools/command_line.h"

namespace qccl::tools {
namespace {

constexpr const char* kCompletionFooter = R"(
Examples:
  source <(qccl completion bash)                              # for this shell; in ~/.bashrc for every one
  source <(qccl completion zsh)                               # after compinit, in ~/.zshrc

Exit code: 0; 2 for wrong flags.
)";

constexpr const char* kBash = R"sh(_qccl() {
  local before=("${COMP_WORDS[@]:1:COMP_CWORD-1}") words
  COMPREPLY=()
  case " ${before[*]} " in *" -- "*) return ;; esac # the program that `qccl run` starts
  words=$("${COMP_WORDS[0]}" --complete "${before[@]}" 2>/dev/null)
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _qccl qccl
)sh";

// clang-format off: version 14 takes the quotation marks of this one for the string's end.
constexpr const char* kZsh = R"sh(_qccl() {
  local -a before=("${(@)words[2,CURRENT-1]}") found
  if (( ! ${before[(Ie)--]} )); then # after it comes the program that `qccl run` starts
    found=(${(f)"$("${words[1]}" --complete "${before[@]}" 2>/dev/null)"})
    compadd -a found && return
  fi
  _files
}
compdef _qccl qccl
)sh";
// clang-format on

}  // namespace

int completion_main(const std::vector<std::string>& arguments) {
  CommandLine app("Prints a script that completes the commands and flags of qccl.", "qccl completion", "SHELL",
                  kCompletionFooter);
  std::string shell;
  app.add_option("SHELL", shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  if (const auto code = app.read(arguments)) return *code;
  fmt::print("{}", shell == "bash" ? kBash : kZsh);
  return 0;
}

}  // namespace qccl::tools
