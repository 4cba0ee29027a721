// QCCL, the compressed collective communication library: the one header to include.
#pragma once

#include "qccl/communicator.h"
#include "qccl/compression.h"
#include "qccl/diagnostics.h"
#include "qccl/error.h"
#include "qccl/error_feedback.h"
#include "qccl/launch.h"
#include "qccl/log.h"
#include "qccl/log_report.h"
#include "qccl/mesh.h"
#include "qccl/onebit.h"
#include "qccl/pipeline.h"
#include "qccl/policy.h"
#include "qccl/sparse.h"
#include "qccl/store.h"
#include "qccl/train.h"
#include "qccl/types.h"
