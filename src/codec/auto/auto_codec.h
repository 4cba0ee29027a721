// No format of its own: whichever of several of about the same accuracy, or none of them, is found to be the fastest.
//
// comm/auto/auto_table.h tries the candidates in a group's own calls. A call is sent as one of them, with that one's
// layout, rounding and bound; so the error of any call is at most the largest of theirs.
#pragma once

#include "codec/registry.h"

namespace qccl {

extern const CodecEntry kAutoCodec;

}  // namespace qccl
