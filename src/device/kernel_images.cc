#include "device/kernel_images.h"

#if defined(QCCL_CUBINS_FILE)

// The compiler takes the files as they are.
asm(R"(
  .pushsection .rodata, "a"
  .balign 64
  .globl qccl_cubins_begin, qccl_cubins_end, qccl_ptx_begin, qccl_ptx_end
  .hidden qccl_cubins_begin, qccl_cubins_end, qccl_ptx_begin, qccl_ptx_end
qccl_cubins_begin:
  .incbin ")" QCCL_CUBINS_FILE R"("
qccl_cubins_end:
qccl_ptx_begin:
  .incbin ")" QCCL_PTX_FILE R"("
  .byte 0
qccl_ptx_end:
  .popsection
)");

extern "C" {
extern const char qccl_cubins_begin[];
extern const char qccl_cubins_end[];
extern const char qccl_ptx_begin[];
extern const char qccl_ptx_end[];
}

namespace qccl::device {

KernelImages built_in_kernels() {
  const auto bytes = (qccl_cubins_end - qccl_cubins_begin) + (qccl_ptx_end - qccl_ptx_begin);
  return {qccl_cubins_begin, qccl_ptx_begin, static_cast<std::size_t>(bytes), QCCL_CUBIN_ARCHITECTURES};
}

}  // namespace qccl::device

#else

namespace qccl::device {

KernelImages built_in_kernels() { return {}; }

}  // namespace qccl::device

#endif
