#include "bootstrap/launcher/launchers.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "base/digest/digest.h"
#include "bootstrap/launcher/node_list.h"
#include "bootstrap/launcher/pmi.h"
#include "os/net/unix_socket.h"

namespace qccl::bootstrap {
namespace {

constexpr std::uint16_t kAzureSingleNodePort = 54965;  // the ports of DeepSpeed, which AzureML's examples use
constexpr std::uint16_t kAzurePort = 6105;
constexpr std::uint16_t kSageMakerPort = 7777;  // the port of SageMaker's own PyTorch launcher
constexpr std::uint16_t kDefaultPort = 29500;   // PyTorch's

Failure invalid(std::string message) { return Failure(ErrorKind::invalid_argument, std::move(message)); }

// A port that all ranks of a job derive from its identity: below the ports Linux gives to connections (32768 on), above
// those of services.
std::uint16_t derived_port(std::string_view identity) {
  constexpr std::uint64_t kFirst = 10000, kCount = 20000;
  return static_cast<std::uint16_t>(kFirst + digest(identity) % kCount);
}

// Unique to this user and job.
std::string socket_name(std::string_view identity) {
  return fmt::format("qccl/{}/{:016x}", os::own_credentials().user, digest(identity));
}

void set_place(Membership& membership, const std::string& address, std::uint16_t port) {
  if (membership.master_address.empty()) membership.master_address = address;
  if (membership.master_port == 0) membership.master_port = port;
}

// For ranks of one host whose launcher gives every job an identity: they need no port; if the user gave an address or a
// port, the other one is derived.
void meet_on_one_host(std::string_view identity, Membership& membership) {
  const bool nothing_given = membership.master_address.empty() && membership.master_port == 0;
  if (nothing_given) membership.meeting_socket = socket_name(identity);
  if (!nothing_given) set_place(membership, "127.0.0.1", derived_port(identity));
}

bool has_master(const Membership& membership) {
  return !membership.master_address.empty() && membership.master_port != 0;
}

bool all_local(const Membership& membership) { return membership.local_world == membership.world; }

std::optional<std::string> not_set(const EnvironmentLookup& lookup, const char* name) {
  if (lookup(name)) return std::nullopt;
  return fmt::format("{} is not set", name);
}

// ---- Open MPI

constexpr Names kOpenMpiRank = {"OMPI_COMM_WORLD_RANK"};
constexpr Names kOpenMpiWorld = {"OMPI_COMM_WORLD_SIZE"};
constexpr Names kOpenMpiLocalRank = {"OMPI_COMM_WORLD_LOCAL_RANK"};
constexpr Names kOpenMpiLocalWorld = {"OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr const char* kOpenMpiHow = "name rank 0's host: mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT";

// The job's number and the address of its daemon: together unique among all jobs on this host, now or later.
std::optional<std::string> open_mpi_identity(const EnvironmentLookup& lookup) {
  const auto job = first_set(lookup, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  const auto daemon = first_set(lookup, {"PMIX_SERVER_URI2", "PMIX_SERVER_URI4", "OMPI_MCA_orte_local_daemon_uri"});
  if (!job || !daemon) return std::nullopt;
  return "openmpi " + job->value + " " + daemon->value;
}

// The first address of "409993216.0;tcp://192.0.2.2,10.0.0.2:49895;tcp6://[fd00::2]:45195", on which mpirun listens.
std::string mpirun_address(std::string_view uri) {
  constexpr std::string_view kScheme = ";tcp://";
  const auto begin = uri.find(kScheme);
  if (begin == std::string_view::npos) return {};
  const auto addresses = uri.substr(begin + kScheme.size());
  return std::string(addresses.substr(0, addresses.find_first_of(",:;")));
}

Status complete_open_mpi(const EnvironmentLookup& lookup, Membership& membership) {
  if (has_master(membership)) return {};
  const auto identity = open_mpi_identity(lookup);
  if (!identity) return {};
  if (all_local(membership)) {
    meet_on_one_host(*identity, membership);
    return {};
  }
  const auto job = first_set(lookup, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  const auto mpirun = lookup("OMPI_MCA_orte_hnp_uri");
  membership.master_is_guess = membership.master_address.empty();
  set_place(membership, mpirun ? mpirun_address(*mpirun) : "", derived_port(job->value));
  return {};
}

// ---- AzureML and SageMaker, which start ranks with Open MPI

std::optional<std::string> azureml_unsupported_reason(const EnvironmentLookup& lookup) {
  if (lookup("DLTS_JOB_ID")) return "DLTS_JOB_ID is set: not AzureML itself";
  return not_set(lookup, "AZUREML_EXPERIMENT_ID");
}

std::optional<Variable> azureml_interfaces(const EnvironmentLookup&) { return Variable{"AzureML", "^docker0,lo"}; }

Status complete_azureml(const EnvironmentLookup& lookup, Membership& membership) {
  if (all_local(membership)) {
    set_place(membership, lookup("AZ_BATCHAI_MPI_MASTER_NODE").value_or("127.0.0.1"), kAzureSingleNodePort);
    return {};
  }
  const auto node = lookup("AZ_BATCH_MASTER_NODE");
  if (!node && membership.master_address.empty()) {
    return invalid("AzureML's AZ_BATCH_MASTER_NODE, which names rank 0's host, is not set");
  }
  const std::string text = node.value_or("");
  set_place(membership, text.substr(0, text.rfind(':')), kAzurePort);
  return {};
}

std::optional<std::string> sagemaker_unsupported_reason(const EnvironmentLookup& lookup) {
  return not_set(lookup, "SM_TRAINING_ENV");
}

// The first of ["algo-1", "algo-2"]: mpirun gets the hosts in this order. Names contain no quotes.
Result<std::string> first_of_list(const std::string& json) {
  const auto begin = json.find('"');
  const auto end = begin == std::string::npos ? begin : json.find('"', begin + 1);
  if (end != std::string::npos && end > begin + 1) return json.substr(begin + 1, end - begin - 1);
  return invalid(fmt::format("SageMaker's SM_HOSTS is \"{}\": expected a list such as [\"algo-1\", \"algo-2\"]", json));
}

std::optional<Variable> sagemaker_interfaces(const EnvironmentLookup& lookup) {
  const auto interface = lookup("SM_NETWORK_INTERFACE_NAME");
  if (!interface) return std::nullopt;
  return Variable{"SM_NETWORK_INTERFACE_NAME", "=" + *interface};
}

Status complete_sagemaker(const EnvironmentLookup& lookup, Membership& membership) {
  if (all_local(membership)) set_place(membership, "127.0.0.1", kSageMakerPort);
  const auto hosts = lookup("SM_HOSTS");
  if (hosts && membership.master_address.empty()) {
    auto first = first_of_list(*hosts);
    if (!first) return first.failure();
    membership.master_address = *first;
  }
  set_place(membership, "", kSageMakerPort);
  return {};
}

// ---- PMI: MPICH, Intel MPI, Slurm's own

constexpr const char* kPmiHow = "name rank 0's host: mpirun -genv MASTER_ADDR HOST -genv MASTER_PORT PORT";

Status complete_pmi(const EnvironmentLookup& lookup, Membership& membership) {
  const bool in_slurm_step = lookup("SLURM_STEP_ID") && lookup("SLURM_PROCID") == std::to_string(membership.rank);
  if (has_master(membership) || in_slurm_step) return {};  // Slurm's own variables give more
  if (all_local(membership)) {
    auto identity = pmi_identity(lookup);
    if (!identity) return identity.failure();
    meet_on_one_host(*identity, membership);
    return {};
  }
  if (!membership.master_address.empty()) return {};
  auto descriptor = pmi_descriptor(lookup);
  if (!descriptor) return descriptor.failure();
  membership.pmi_descriptor = *descriptor;
  membership.own_name = lookup("MPIR_CVAR_CH3_INTERFACE_HOSTNAME").value_or("");
  return {};
}

// ---- Slurm

// For a batch script itself Slurm sets most of the variables of srun's tasks, describing the script's single process.
std::optional<std::string> slurm_unsupported_reason(const EnvironmentLookup& lookup) {
  if (auto reason = not_set(lookup, "SLURM_PROCID")) return reason;
  if (lookup("SLURM_STEP_ID") || lookup("SLURM_STEPID") || lookup("ENVIRONMENT") != "BATCH") return std::nullopt;
  return "SLURM_PROCID is the batch script's, not one of srun's: SLURM_STEP_ID is not set";
}

// The number of tasks on this node; 0 if Slurm does not give it, or gives it for something other than this step.
int slurm_local_world(const EnvironmentLookup& lookup, const Membership& membership) {
  const auto tasks = first_set(lookup, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (!tasks) return 0;
  const auto counts = expand_task_counts(tasks->value);
  if (!counts) return 0;
  int sum = 0;
  for (const int count : counts.value()) sum += count;
  const std::string text = lookup("SLURM_NODEID").value_or("0");
  std::size_t node = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), node);
  if (sum != membership.world || error != std::errc() || node >= counts.value().size()) return 0;
  return counts.value()[node];
}

Status complete_slurm(const EnvironmentLookup& lookup, Membership& membership) {
  if (membership.local_world == 0) membership.local_world = slurm_local_world(lookup, membership);
  const auto job = lookup("SLURM_JOB_ID");
  const std::string step = first_set(lookup, {"SLURM_STEP_ID", "SLURM_STEPID"}).value_or(Variable{"", "0"}).value;
  set_place(membership, "", job ? derived_port(fmt::format("slurm {}.{}", *job, step)) : kDefaultPort);
  if (!membership.master_address.empty()) return {};
  const auto list = first_set(lookup, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) return {};
  auto nodes = expand_node_list(list->value);
  if (!nodes) return invalid(fmt::format("{}: {}", list->name, nodes.error().message));
  membership.master_address = nodes->front();
  if (nodes->size() == 1 && membership.local_world == 0) membership.local_world = membership.world;
  return {};
}

// ---- the table

std::optional<std::string> always(const EnvironmentLookup&) { return std::nullopt; }
Status nothing_more(const EnvironmentLookup&, Membership&) { return {}; }
std::optional<Variable> any(const EnvironmentLookup&) { return std::nullopt; }

// AzureML and SageMaker come before Open MPI: their ranks also have its variables, but those of the service give more.
constexpr Launcher kLaunchers[] = {
    {.name = "torchrun",
     .words = "RANK and WORLD_SIZE (torchrun, deepspeed, qccl run)",
     .unsupported_reason = always,
     .rank = {"RANK"},
     .world = {"WORLD_SIZE"},
     .local_rank = {"LOCAL_RANK"},
     .local_world = {"LOCAL_WORLD_SIZE", "LOCAL_SIZE"},
     .complete = nothing_more,
     .interfaces = any,
     .how_to_set_master = "set MASTER_ADDR to rank 0's host name or address and MASTER_PORT to a free port of it"},
    {.name = "AzureML",
     .words = "AzureML (AZUREML_EXPERIMENT_ID, over Open MPI)",
     .unsupported_reason = azureml_unsupported_reason,
     .rank = kOpenMpiRank,
     .world = kOpenMpiWorld,
     .local_rank = kOpenMpiLocalRank,
     .local_world = kOpenMpiLocalWorld,
     .complete = complete_azureml,
     .interfaces = azureml_interfaces,
     .how_to_set_master = kOpenMpiHow},
    {.name = "SageMaker",
     .words = "SageMaker (SM_TRAINING_ENV, over Open MPI)",
     .unsupported_reason = sagemaker_unsupported_reason,
     .rank = kOpenMpiRank,
     .world = kOpenMpiWorld,
     .local_rank = kOpenMpiLocalRank,
     .local_world = kOpenMpiLocalWorld,
     .complete = complete_sagemaker,
     .interfaces = sagemaker_interfaces,
     .how_to_set_master = kOpenMpiHow},
    {.name = "Open MPI",
     .words = "Open MPI (mpirun)",
     .unsupported_reason = always,
     .rank = kOpenMpiRank,
     .world = kOpenMpiWorld,
     .local_rank = kOpenMpiLocalRank,
     .local_world = kOpenMpiLocalWorld,
     .complete = complete_open_mpi,
     .interfaces = any,
     .how_to_set_master = kOpenMpiHow},
    {.name = "PMI",
     .words = "PMI (MPICH, Intel MPI, srun --mpi=pmi2)",
     .unsupported_reason = always,
     .rank = {"PMI_RANK"},
     .world = {"PMI_SIZE"},
     .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"},
     .local_world = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"},
     .complete = complete_pmi,
     .interfaces = any,
     .how_to_set_master = kPmiHow},
    {.name = "PMIx",
     .words = "PMIx",
     .unsupported_reason = always,
     .rank = {"PMIX_RANK"},
     .world = {},  // no variable gives it
     .local_rank = {},
     .local_world = {},
     .complete = nothing_more,
     .interfaces = any,
     .how_to_set_master = kPmiHow},
    {.name = "Slurm",
     .words = "Slurm (srun)",
     .unsupported_reason = slurm_unsupported_reason,
     .rank = {"SLURM_PROCID"},
     .world = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     .local_rank = {"SLURM_LOCALID"},
     .local_world = {},  // complete_slurm() finds it
     .complete = complete_slurm,
     .interfaces = any,
     .how_to_set_master = "name rank 0's host: export MASTER_ADDR=HOST MASTER_PORT=PORT before srun"},
};

}  // namespace

std::span<const Launcher> launchers() { return kLaunchers; }

std::optional<Variable> first_set(const EnvironmentLookup& lookup, const Names& names) {
  for (const char* name : names) {
    if (name == nullptr) break;
    if (auto value = lookup(name)) return Variable{name, std::move(*value)};
  }
  return std::nullopt;
}

}  // namespace qccl::bootstrap
