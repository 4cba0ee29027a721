#include "tools/run/job_part.h"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace qccl::tools {

using Json = nlohmann::json;

std::string encode_job_part(const JobPart& part) {
  Json variables = Json::array();
  for (const auto& [name, value] : part.variables) variables.push_back({name, value});
  const Json json = {{"world", part.world},
                     {"first_rank", part.first_rank},
                     {"ranks", part.ranks},
                     {"master_address", part.master_address},
                     {"master_port", part.master_port},
                     {"folder", part.folder},
                     {"variables", std::move(variables)},
                     {"command", part.command},
                     {"bind_to_cores", part.bind_to_cores},
                     {"grace", part.grace.count()},
                     {"host_timeout", part.host_timeout.count()}};
  std::string bytes;
  Json::to_cbor(json, bytes);  // takes words that are no UTF-8, too
  return bytes;
}

std::optional<JobPart> decode_job_part(const std::string& bytes) {
  try {
    const Json json = Json::from_cbor(bytes);
    JobPart part;
    part.world = json.at("world");
    part.first_rank = json.at("first_rank");
    part.ranks = json.at("ranks");
    part.master_address = json.at("master_address");
    part.master_port = json.at("master_port");
    part.folder = json.at("folder");
    part.variables = json.at("variables").get<Variables>();
    part.command = json.at("command").get<std::vector<std::string>>();
    part.bind_to_cores = json.at("bind_to_cores");
    part.grace = std::chrono::milliseconds(json.at("grace").get<std::int64_t>());
    part.host_timeout = std::chrono::milliseconds(json.at("host_timeout").get<std::int64_t>());
    return part.command.empty() ? std::nullopt : std::optional(std::move(part));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace qccl::tools
