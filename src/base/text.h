// Makes text from an untrusted source printable.
#pragma once

#include <string>
#include <string_view>

namespace qccl {

// `text` with a blank for every control character (C0, DEL and C1, hence also for line ends and tabs) and '?' for every
// byte that is not UTF-8: the result moves no cursor and changes no colour of a terminal.
std::string printable(std::string_view text);

}  // namespace qccl
