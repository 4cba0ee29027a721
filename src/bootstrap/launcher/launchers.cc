#include "bootstrap/launcher/launchers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <numeric>

#include "base/digest/digest.h"
#include "base/text.h"
#include "bootstrap/launcher/pmi.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

constexpr std::uint16_t kAzureSingleNodePort = 54965;  // the ports of DeepSpeed, which AzureML's examples use
constexpr std::uint16_t kAzurePort = 6105;
constexpr std::uint16_t kSageMakerPort = 7777;  // the port of SageMaker's own PyTorch launcher
constexpr std::uint16_t kDefaultPort = 29500;   // PyTorch's

// A port that all ranks of a job derive from its identity: above those of services, below those of connections (32768).
std::uint16_t derived_port(std::string_view identity) {
  constexpr std::uint64_t kFirst = 10000, kCount = 20000;
  return static_cast<std::uint16_t>(kFirst + digest(identity) % kCount);
}

void set_master(LaunchIdentity& launch, const std::string& address, std::uint16_t port) {
  if (launch.master_address.empty()) launch.master_address = address;
  if (launch.master_port == 0) launch.master_port = port;
}

// For ranks of one host whose launcher gives every job an identity: they meet at a socket of this user and job. If the
// user gave an address or a port, the other one is derived.
void meet_on_one_host(std::string_view identity, LaunchIdentity& launch) {
  if (launch.master_address.empty() && launch.master_port == 0) {
    launch.meeting_socket = fmt::format("qccl/{}/{:016x}", os::own_credentials().user, digest(identity));
  } else {
    set_master(launch, "127.0.0.1", derived_port(identity));
  }
}

bool has_master(const LaunchIdentity& launch) { return !launch.master_address.empty() && launch.master_port != 0; }

bool all_local(const LaunchIdentity& launch) { return launch.local_world == launch.world; }

std::optional<std::string> not_set(const EnvironmentLookup& lookup, const char* name) {
  if (lookup(name)) return std::nullopt;
  return fmt::format("{} is not set", name);
}

// ---- Open MPI

// The first address of "409993216.0;tcp://192.0.2.2,10.0.0.2:49895;tcp6://[fd00::2]:45195", on which mpirun listens.
std::string mpirun_address(std::string_view uri) {
  constexpr std::string_view kScheme = ";tcp://";
  const auto begin = uri.find(kScheme);
  if (begin == std::string_view::npos) return {};
  const auto addresses = uri.substr(begin + kScheme.size());
  return std::string(addresses.substr(0, addresses.find_first_of(",:;")));
}

Status complete_open_mpi(const EnvironmentLookup& lookup, LaunchIdentity& launch) {
  const auto job = first_set(lookup, {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  const auto daemon = first_set(lookup, {"PMIX_SERVER_URI2", "PMIX_SERVER_URI4", "OMPI_MCA_orte_local_daemon_uri"});
  if (has_master(launch) || !job || !daemon) return {};
  if (all_local(launch)) {
    // Job number and daemon address are together unique among all jobs on this host, now or later.
    meet_on_one_host(fmt::format("openmpi {} {}", job->value, daemon->value), launch);
    return {};
  }
  const auto mpirun = lookup("OMPI_MCA_orte_hnp_uri");
  launch.master_is_guess = launch.master_address.empty();
  set_master(launch, mpirun ? mpirun_address(*mpirun) : "", derived_port(job->value));
  return {};
}

// ---- AzureML and SageMaker, which start ranks with Open MPI

std::optional<std::string> azureml_unsupported_reason(const EnvironmentLookup& lookup) {
  if (lookup("DLTS_JOB_ID")) return "DLTS_JOB_ID is set: not AzureML itself";
  return not_set(lookup, "AZUREML_EXPERIMENT_ID");
}

Status complete_azureml(const EnvironmentLookup& lookup, LaunchIdentity& launch) {
  if (all_local(launch)) {
    set_master(launch, lookup("AZ_BATCHAI_MPI_MASTER_NODE").value_or("127.0.0.1"), kAzureSingleNodePort);
    return {};
  }
  const auto node = lookup("AZ_BATCH_MASTER_NODE");
  if (!node && launch.master_address.empty()) {
    return invalid("AzureML's AZ_BATCH_MASTER_NODE, which names rank 0's host, is not set");
  }
  const std::string text = node.value_or("");
  set_master(launch, text.substr(0, text.rfind(':')), kAzurePort);
  return {};
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

Status complete_sagemaker(const EnvironmentLookup& lookup, LaunchIdentity& launch) {
  if (all_local(launch)) set_master(launch, "127.0.0.1", kSageMakerPort);
  const auto hosts = lookup("SM_HOSTS");
  if (hosts && launch.master_address.empty()) {
    QCCL_ASSIGN(launch.master_address, first_of_list(*hosts));
  }
  set_master(launch, "", kSageMakerPort);
  return {};
}

// ---- PMI: MPICH, Intel MPI, Slurm's own

Status complete_pmi(const EnvironmentLookup& lookup, LaunchIdentity& launch) {
  const bool in_slurm_step = lookup("SLURM_STEP_ID") && lookup("SLURM_PROCID") == std::to_string(launch.rank);
  if (has_master(launch) || in_slurm_step) return {};  // Slurm's own variables give more
  if (all_local(launch)) {
    QCCL_ASSIGN(const auto identity, pmi_identity(lookup));
    meet_on_one_host(identity, launch);
    return {};
  }
  if (!launch.master_address.empty()) return {};
  QCCL_ASSIGN(launch.pmi_descriptor, pmi_descriptor(lookup));
  launch.own_name = lookup("MPIR_CVAR_CH3_INTERFACE_HOSTNAME").value_or("");
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
int slurm_local_world(const EnvironmentLookup& lookup, const LaunchIdentity& launch) {
  const auto tasks = first_set(lookup, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  const auto node = parse_number<std::size_t>(lookup("SLURM_NODEID").value_or("0"));
  if (!tasks || !node) return 0;
  const auto counts = expand_task_counts(tasks->value);
  if (!counts || *node >= counts.value().size()) return 0;
  const int sum = std::accumulate(counts.value().begin(), counts.value().end(), 0);
  return sum == launch.world ? counts.value()[*node] : 0;
}

Status complete_slurm(const EnvironmentLookup& lookup, LaunchIdentity& launch) {
  if (launch.local_world == 0) launch.local_world = slurm_local_world(lookup, launch);
  const auto job = lookup("SLURM_JOB_ID");
  const std::string step = first_set(lookup, {"SLURM_STEP_ID", "SLURM_STEPID"}).value_or(Variable{"", "0"}).value;
  set_master(launch, "", job ? derived_port(fmt::format("slurm {}.{}", *job, step)) : kDefaultPort);
  if (!launch.master_address.empty()) return {};
  const auto list = first_set(lookup, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (!list) return {};
  auto nodes = expand_node_list(list->value);
  if (!nodes) return invalid(fmt::format("{}: {}", list->name, nodes.error().message));
  launch.master_address = nodes->front();
  if (nodes->size() == 1 && launch.local_world == 0) launch.local_world = launch.world;
  return {};
}

// ---- launchers that give every job an identity

// If all ranks are here they meet by the job's identity, which these variables give.
Status meet_by(const EnvironmentLookup& lookup, std::initializer_list<const char*> names, LaunchIdentity& launch) {
  std::string identity;
  for (const char* name : names) {
    auto value = lookup(name);
    if (!value) return {};
    identity += fmt::format("{}={} ", name, *value);
  }
  if (all_local(launch) && !has_master(launch)) meet_on_one_host(identity, launch);
  return {};
}

Status complete_flux(const EnvironmentLookup& lookup, LaunchIdentity& launch) {
  if (launch.local_world == 0 && lookup("FLUX_JOB_NNODES") == "1") launch.local_world = launch.world;
  return meet_by(lookup, {"FLUX_URI", "FLUX_JOB_ID"}, launch);
}

// ---- the nodes of torchrun, whose variables platforms set for a torchrun that a program may have been started without

std::optional<std::string> nodes_unsupported_reason(const EnvironmentLookup& lookup) {
  const auto nodes = first_set(lookup, {"PET_NNODES", "GROUP_WORLD_SIZE"});
  if (!nodes) return "PET_NNODES is not set";
  if (!parse_number<int>(nodes->value)) return fmt::format("{}={} is no number of nodes", nodes->name, nodes->value);
  if (!first_set(lookup, {"PET_NODE_RANK", "GROUP_RANK"})) return "PET_NODE_RANK is not set";
  const std::string processes = lookup("PET_NPROC_PER_NODE").value_or("1");
  if (processes == "1") return std::nullopt;
  return fmt::format("PET_NPROC_PER_NODE={}: a node has several ranks, which torchrun would number", processes);
}

Status complete_nodes(const EnvironmentLookup& lookup, LaunchIdentity& launch) {
  if (launch.local_world == 0) launch.local_world = 1;
  if (launch.local_rank < 0) launch.local_rank = 0;
  const std::string endpoint = lookup("PET_RDZV_ENDPOINT").value_or("");
  const auto colon = std::min(endpoint.rfind(':'), endpoint.size());
  const std::string port = lookup("PET_MASTER_PORT").value_or(endpoint.substr(std::min(colon + 1, endpoint.size())));
  const std::string address = lookup("PET_MASTER_ADDR").value_or(endpoint.substr(0, colon));
  set_master(launch, os::without_brackets(address), parse_number<std::uint16_t>(port).value_or(kDefaultPort));
  return {};
}

// ---- the table

constexpr RankVariables kOpenMpiVariables = {.rank = {"OMPI_COMM_WORLD_RANK"},
                                             .world = {"OMPI_COMM_WORLD_SIZE"},
                                             .local_rank = {"OMPI_COMM_WORLD_LOCAL_RANK"},
                                             .local_world = {"OMPI_COMM_WORLD_LOCAL_SIZE"}};
constexpr const char* kOpenMpiMaster = "name rank 0's host: mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT";
constexpr const char* kPmiMaster = "name rank 0's host: mpirun -genv MASTER_ADDR HOST -genv MASTER_PORT PORT";

// AzureML and SageMaker come before Open MPI: their ranks also have its variables, but those of the service give more.
constexpr Launcher kLaunchers[] = {
    {.name = "torchrun",
     .description = "RANK and WORLD_SIZE (torchrun, deepspeed, qccl run)",
     .variables = {.rank = {"RANK"},
                   .world = {"WORLD_SIZE"},
                   .local_rank = {"LOCAL_RANK"},
                   .local_world = {"LOCAL_WORLD_SIZE", "LOCAL_SIZE"}},
     .how_to_set_master = "set MASTER_ADDR to rank 0's host name or address and MASTER_PORT to a free port of it"},
    {.name = "AzureML",
     .description = "AzureML (AZUREML_EXPERIMENT_ID, over Open MPI)",
     .variables = kOpenMpiVariables,
     .how_to_set_master = kOpenMpiMaster,
     .unsupported_reason = azureml_unsupported_reason,
     .complete = complete_azureml,
     .interfaces =
         [](const EnvironmentLookup&) {
           return std::optional(Variable{"AzureML", "^docker0,lo"});
         }},
    {.name = "SageMaker",
     .description = "SageMaker (SM_TRAINING_ENV, over Open MPI)",
     .variables = kOpenMpiVariables,
     .how_to_set_master = kOpenMpiMaster,
     .unsupported_reason = [](const EnvironmentLookup& lookup) { return not_set(lookup, "SM_TRAINING_ENV"); },
     .complete = complete_sagemaker,
     .interfaces = sagemaker_interfaces},
    {.name = "Open MPI",
     .description = "Open MPI (mpirun)",
     .variables = kOpenMpiVariables,
     .how_to_set_master = kOpenMpiMaster,
     .complete = complete_open_mpi},
    {.name = "MVAPICH2",
     .description = "MVAPICH2 (mpirun_rsh)",
     .variables = {.rank = {"MV2_COMM_WORLD_RANK"},
                   .world = {"MV2_COMM_WORLD_SIZE"},
                   .local_rank = {"MV2_COMM_WORLD_LOCAL_RANK"},
                   .local_world = {"MV2_COMM_WORLD_LOCAL_SIZE"}},
     .how_to_set_master = "name rank 0's host: mpirun_rsh ... MASTER_ADDR=HOST MASTER_PORT=PORT PROGRAM"},
    {.name = "JSM",
     .description = "JSM (jsrun)",
     .variables = {.rank = {"JSM_NAMESPACE_RANK"},
                   .world = {"JSM_NAMESPACE_SIZE"},
                   .local_rank = {"JSM_NAMESPACE_LOCAL_RANK"},
                   .local_world = {"JSM_NAMESPACE_LOCAL_SIZE"}},
     .how_to_set_master = "name rank 0's host: jsrun -E MASTER_ADDR=HOST -E MASTER_PORT=PORT"},
    {.name = "Flux",
     .description = "Flux (flux run)",
     .variables = {.rank = {"FLUX_TASK_RANK"},
                   .world = {"FLUX_JOB_SIZE"},
                   .local_rank = {"FLUX_TASK_LOCAL_ID"},
                   .local_world = {}},  // complete_flux() finds it
     .how_to_set_master = "name rank 0's host: flux run --env=MASTER_ADDR=HOST --env=MASTER_PORT=PORT",
     .complete = complete_flux},
    {.name = "PALS",
     .description = "PALS (Cray's mpiexec)",
     .variables = {.rank = {"PALS_RANKID"},
                   .world = {"PALS_NRANKS"},
                   .local_rank = {"PALS_LOCAL_RANKID"},
                   .local_world = {"PALS_LOCAL_SIZE"}},
     .how_to_set_master = "name rank 0's host: mpiexec --env MASTER_ADDR=HOST --env MASTER_PORT=PORT",
     .complete = [](const EnvironmentLookup& lookup,
                    LaunchIdentity& launch) { return meet_by(lookup, {"PALS_APID"}, launch); }},
    {.name = "Horovod",
     .description = "Horovod (horovodrun)",
     .variables = {.rank = {"HOROVOD_RANK"},
                   .world = {"HOROVOD_SIZE"},
                   .local_rank = {"HOROVOD_LOCAL_RANK"},
                   .local_world = {"HOROVOD_LOCAL_SIZE"}},
     .how_to_set_master = "name rank 0's host: export MASTER_ADDR=HOST MASTER_PORT=PORT before horovodrun",
     .complete =
         [](const EnvironmentLookup& lookup, LaunchIdentity& launch) {
           return meet_by(lookup, {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"}, launch);
         }},
    {.name = "PMI",
     .description = "PMI (MPICH, Intel MPI, srun --mpi=pmi2)",
     .variables = {.rank = {"PMI_RANK"},
                   .world = {"PMI_SIZE"},
                   .local_rank = {"MPI_LOCALRANKID", "PMI_LOCAL_RANK", "PALS_LOCAL_RANKID"},
                   .local_world = {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE"}},
     .how_to_set_master = kPmiMaster,
     .complete = complete_pmi},
    {.name = "PMIx",
     .description = "PMIx",
     .variables = {.rank = {"PMIX_RANK"}, .world = {}, .local_rank = {}, .local_world = {}},  // only the rank is given
     .how_to_set_master = kPmiMaster},
    {.name = "Slurm",
     .description = "Slurm (srun)",
     .variables = {.rank = {"SLURM_PROCID"},
                   .world = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
                   .local_rank = {"SLURM_LOCALID"},
                   .local_world = {}},  // complete_slurm() finds it
     .how_to_set_master = "name rank 0's host: export MASTER_ADDR=HOST MASTER_PORT=PORT before srun",
     .unsupported_reason = slurm_unsupported_reason,
     .complete = complete_slurm},
    {.name = "torchrun's nodes",
     .description = "PET_NODE_RANK and PET_NNODES (one process a node)",
     .variables = {.rank = {"PET_NODE_RANK", "GROUP_RANK"},
                   .world = {"PET_NNODES", "GROUP_WORLD_SIZE"},
                   .local_rank = {},
                   .local_world = {}},  // complete_nodes() sets both
     .how_to_set_master = "start the program by torchrun, or set MASTER_ADDR and MASTER_PORT to rank 0's",
     .unsupported_reason = nodes_unsupported_reason,
     .complete = complete_nodes,
     .counts_nodes = true},
};

constexpr LaunchSign kLaunchSigns[] = {
    {"PET_NODE_RANK", "PET_NNODES"},
    {"PET_RDZV_ENDPOINT", "PET_NNODES"},
    {"GROUP_RANK", "PET_NNODES"},
    {"GROUP_RANK", "GROUP_WORLD_SIZE"},
    {"NODE_RANK", "NNODES"},
    {"SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"},
    {"MPIRUN_RANK", "MPIRUN_NPROCS"},
    {"MPI_RANKID", "MPI_NRANKS"},
    {"SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"},
    {"AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES"},
};

}  // namespace

std::span<const LaunchSign> launch_signs() { return kLaunchSigns; }

std::span<const Launcher> launchers() { return kLaunchers; }

std::optional<Variable> find_interface_filter(const EnvironmentLookup& lookup) {
  if (auto own = first_set(lookup, {"QCCL_SOCKET_IFNAME"})) return own;
  std::string replaced = lookup("QCCL_REPLACE").value_or("");
  std::ranges::transform(replaced, replaced.begin(), [](unsigned char c) { return std::tolower(c); });
  auto gloos = first_set(lookup, {"GLOO_SOCKET_IFNAME"});
  if (gloos && replaced.find("gloo") != std::string::npos) {
    gloos->value.insert(0, "=");  // it lists whole names
    return gloos;
  }
  return first_set(lookup, {"NCCL_SOCKET_IFNAME"});
}

std::optional<Variable> first_set(const EnvironmentLookup& lookup, const VariableNames& names) {
  for (const char* name : names) {
    if (name == nullptr) break;
    if (auto value = lookup(name)) return Variable{name, std::move(*value)};
  }
  return std::nullopt;
}

}  // namespace qccl::bootstrap
