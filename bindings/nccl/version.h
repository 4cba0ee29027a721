// The release of NCCL for which programs are to take this library.
#pragma once

namespace qccl::nccl {

// 22809, or what QCCL_NCCL_VERSION says. Throws invalid_argument if that is no version.
int version_code();
// Once a process, with NCCL_DEBUG: a line on standard output that names QCCL.
void show_version();

}  // namespace qccl::nccl
