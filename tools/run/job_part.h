// What a host has to know to start its ranks of a job.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/run/process/rank_process.h"

namespace qccl::tools {

struct JobPart {
  int world = 1;
  int first_rank = 0;
  int ranks = 1;  // of this host, first_rank on
  std::string master_address = "127.0.0.1";
  int master_port = 0;  // 0: rank 0 is here, and any free port will do
  std::string folder;   // to run in; empty: where the launcher is
  Variables variables;  // for every rank
  std::vector<std::string> command;
  bool bind_to_cores = false;
  std::chrono::milliseconds grace{5000};           // between SIGTERM and SIGKILL
  std::chrono::milliseconds host_timeout{60'000};  // of silence, after which the launcher counts as gone
};

// Words may hold any bytes. Nothing if it can't be read.
std::string encode_job_part(const JobPart& part);
std::optional<JobPart> decode_job_part(const std::string& bytes);

}  // namespace qccl::tools
