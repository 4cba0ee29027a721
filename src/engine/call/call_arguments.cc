#include "engine/call/call_arguments.h"

namespace qccl::engine {

std::string_view operation_name(const CallArguments& arguments) {
  if (!arguments.message) return to_string(arguments.plan->call().collective);
  return arguments.message->incoming ? "recv" : "send";
}

}  // namespace qccl::engine
