// Files with secrets: read from a path or from a descriptor that a parent process passed on, made, and passed on.
//
// A secret passed on is a memfd without a name in any file system. The variable that announces it says where it is,
// "7@4242": descriptor 7 of this process, or, where a program in between has closed it, of process 4242 that made it
// (/proc/4242/fd/7, which the kernel opens for the same user only).
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "os/fd.h"

namespace qccl::os {

// The whole content. InvalidArgument if it is longer than `most_bytes`; else the system's reason. Messages never have
// any of the content.
Result<std::string> read_secret_file(const std::string& path, std::size_t most_bytes);

// Others than the owner can read the file.
bool is_readable_by_others(const std::string& path);

// Creates a file that only its owner can read. Misuse if it exists: a key in use is never overwritten.
Status write_secret_file(const std::string& path, const std::string& content);

struct PassedSecret {
  Fd fd;                 // which child processes inherit, through exec too
  std::string location;  // "7@4242", for read_inherited_secret() in a child
};
Result<PassedSecret> pass_secret(const std::string& content);
// Misuse if neither this process nor the maker has the descriptor any more.
Result<std::string> read_inherited_secret(const std::string& location, std::size_t most_bytes);

}  // namespace qccl::os
