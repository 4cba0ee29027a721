// Text that somebody else wrote, made fit to print.
#pragma once

#include <string>
#include <string_view>

namespace qccl {

// `text` with a blank for every control character (C0, DEL and C1, so for line ends and tabs, too) and '?' for every
// byte that is no UTF-8: what is left moves no cursor and changes no colour of a terminal.
std::string printable(std::string_view text);

}  // namespace qccl
