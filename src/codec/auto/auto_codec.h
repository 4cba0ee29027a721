// No format of its own: the fastest of several codecs of about the same accuracy, or of no compression.
//
// comm/auto/compression_trial.h tries the candidates in a group's own calls. Each call is sent as one of them, with
// its layout, rounding and bound, so the error of any call is at most the largest of theirs.
#pragma once

#include "codec/registry.h"

namespace qccl {

extern const CodecEntry kAutoCodec;

}  // namespace qccl
