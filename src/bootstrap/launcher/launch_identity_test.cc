#include "bootstrap/launcher/launch_identity.h"

#include <gtest/gtest.h>

#include <map>

#include "bootstrap/test_support.h"
#include "os/net/socket.h"

namespace qccl::bootstrap {
namespace {

using Variables = std::map<std::string, std::string>;

EnvironmentLookup lookup_in(Variables variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

Result<LaunchIdentity> discover(Variables variables, const InitOptions& options = {}) {
  return discover_identity(options, lookup_in(std::move(variables)));
}

LaunchIdentity found(Variables variables, const InitOptions& options = {}) {
  return discover(std::move(variables), options).take_or_throw();
}

void expect_invalid(const Result<LaunchIdentity>& result, const std::vector<std::string>& texts) {
  for (const auto& text : texts) expect_failure(result, ErrorKind::invalid_argument, text);
}

Variables operator+(Variables variables, const Variables& added) {
  for (const auto& [name, value] : added) variables[name] = value;
  return variables;
}

Variables operator-(Variables variables, const char* name) {
  variables.erase(name);
  return variables;
}

Variables torchrun(const std::string& rank) {
  return {{"RANK", rank},
          {"WORLD_SIZE", "4"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "node0"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", "run7"},
          {"TORCHELASTIC_RESTART_COUNT", "3"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"}};
}

// Rank 1 of 2, as Open MPI 4.1's mpirun starts it.
Variables open_mpi(const char* local_size = "2") {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", std::string(local_size) == "1" ? "0" : "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", local_size},
          {"OMPI_MCA_orte_hnp_uri", "409993216.0;tcp://192.0.2.2,10.0.0.2:49895;tcp6://[fd00::2]:45195"},
          {"PMIX_RANK", "1"},
          {"PMIX_NAMESPACE", "409993217"},
          {"PMIX_SERVER_URI2", "409993216.0;tcp4://127.0.0.1:49697"}};
}

Variables slurm(const Variables& more = {}) {
  return Variables{{"SLURM_PROCID", "3"},           {"SLURM_NTASKS", "5"},
                   {"SLURM_LOCALID", "0"},          {"SLURM_NODEID", "1"},
                   {"SLURM_JOB_ID", "4711"},        {"SLURM_STEP_ID", "0"},
                   {"SLURM_TASKS_PER_NODE", "3,2"}, {"SLURM_JOB_NODELIST", "gpu-a[07-08]"}} +
         more;
}

Variables azureml(const char* local_size) {
  return open_mpi(local_size) + Variables{{"AZUREML_EXPERIMENT_ID", "e1"},
                                          {"AZ_BATCHAI_MPI_MASTER_NODE", "node-0"},
                                          {"AZ_BATCH_MASTER_NODE", "10.1.0.4:6000"}};
}

Variables sagemaker(const char* local_size) {
  return open_mpi(local_size) + Variables{{"SM_TRAINING_ENV", "{}"},
                                          {"SM_HOSTS", R"(["algo-1", "algo-2"])"},
                                          {"SM_NETWORK_INTERFACE_NAME", "eth0"}};
}

void expect_ranks(const LaunchIdentity& found, int rank, int world, int local_rank, int local_world) {
  EXPECT_EQ(found.rank, rank);
  EXPECT_EQ(found.world, world);
  EXPECT_EQ(found.local_rank, local_rank);
  EXPECT_EQ(found.local_world, local_world);
}

// "node0:29500", or "node0:derived".
std::string master_of(const LaunchIdentity& found) {
  const bool is_derived = found.master_port >= 10000 && found.master_port < 29000;
  return found.master_address + ":" + (is_derived ? "derived" : std::to_string(found.master_port));
}

TEST(LaunchIdentity, nothing_set_is_a_single_process) {
  const auto alone = found({});
  expect_ranks(alone, 0, 1, 0, 1);
  EXPECT_FALSE(alone.hosts_store);
  EXPECT_EQ(alone.source, "a single process (no ranks in options or environment)");
}

TEST(LaunchIdentity, every_variable_of_torchrun_is_read) {
  const auto rank = found(torchrun("3"));
  expect_ranks(rank, 3, 4, 1, 2);
  EXPECT_EQ(master_of(rank), "node0:29500");
  EXPECT_EQ(rank.job, "run7");
  EXPECT_EQ(rank.restart, 3u);
  EXPECT_FALSE(rank.hosts_store);
  EXPECT_EQ(rank.source, "RANK and WORLD_SIZE (torchrun, deepspeed, qccl run)");
}

TEST(LaunchIdentity, rank_0_hosts_the_store_unless_torchruns_agent_does) {
  const auto host = torchrun("0") + Variables{{"LOCAL_RANK", "0"}};
  const auto agent = host + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_TRUE(found(host).hosts_store);
  EXPECT_FALSE(found(agent).hosts_store);
  InitOptions own_port;
  own_port.master_port = 4000;
  EXPECT_TRUE(found(agent, own_port).hosts_store);
}

TEST(LaunchIdentity, options_take_precedence_over_variables) {
  InitOptions options;
  options.rank = 0;
  options.world = 7;
  options.master_address = "10.0.0.9";
  options.job = "mine";
  for (const Variables& variables : {torchrun("3"), open_mpi() + Variables{{"MASTER_PORT", "29500"}}}) {
    const auto rank = found(variables, options);
    expect_ranks(rank, 0, 7, -1, 0);
    EXPECT_EQ(master_of(rank), "10.0.0.9:29500");
    EXPECT_EQ(rank.job, "mine");
    EXPECT_EQ(rank.source, "init() options");
  }
}

InitOptions ranks_given(int rank, int world) {
  InitOptions options;
  options.rank = rank;
  options.world = world;
  return options;
}

TEST(LaunchIdentity, a_store_of_the_program_needs_no_master) {
  InitOptions options = ranks_given(0, 2);
  options.store = std::make_shared<MemoryStore>();
  EXPECT_FALSE(found({}, options).hosts_store);
}

// Each a variable of another launch, or of one that means something else.
const std::vector<std::pair<const char*, const char*>> kWrong = {{"MASTER_ADDR", "gone.invalid"},
                                                                 {"MASTER_ADDR", "localhost"},
                                                                 {"MASTER_PORT", "0"},
                                                                 {"MASTER_PORT", "tcp://a:80"},
                                                                 {"LOCAL_RANK", "-1"},
                                                                 {"LOCAL_RANK", "7"},
                                                                 {"LOCAL_WORLD_SIZE", "8"},
                                                                 {"LOCAL_WORLD_SIZE", "2"},
                                                                 {"TORCHELASTIC_RESTART_COUNT", "x"},
                                                                 {"RANK", "5"},
                                                                 {"WORLD_SIZE", "one"},
                                                                 {"SLURM_PROCID", "3"},
                                                                 {"OMPI_COMM_WORLD_RANK", "0"},
                                                                 {"OMPI_COMM_WORLD_SIZE", "9"},
                                                                 {"PMI_RANK", "x"}};

TEST(LaunchIdentity, of_a_program_that_gives_ranks_and_place_no_variable_counts) {
  InitOptions with_store = ranks_given(1, 2), with_address = ranks_given(1, 2);
  with_store.store = std::make_shared<MemoryStore>();
  with_address.master_address = "10.0.0.9";
  with_address.master_port = 4000;
  for (const auto& [name, value] : kWrong) {
    const Variables variables = Variables{{"RANK", "1"}, {"WORLD_SIZE", "2"}} + Variables{{name, value}};
    for (const InitOptions& options : {with_store, with_address, ranks_given(0, 1)}) {
      const auto rank = found(variables, options);
      expect_ranks(rank, *options.rank, *options.world, -1, 0);
      EXPECT_EQ(rank.master_address, options.master_address.value_or("")) << name;
      EXPECT_EQ(rank.master_port, options.master_port.value_or(0)) << name;
      EXPECT_EQ(rank.restart, 0u);
      EXPECT_FALSE(on_one_host(rank)) << name;
    }
  }
}

TEST(LaunchIdentity, a_store_of_the_program_under_a_launcher_is_where_ranks_meet) {
  InitOptions options;
  options.store = std::make_shared<MemoryStore>();
  for (const auto& [name, value] : kWrong) {
    if (std::string_view(name).starts_with("MASTER")) {
      EXPECT_EQ(found(torchrun("1") + Variables{{name, value}}, options).master_address, "") << name;
    }
  }
}

TEST(LaunchIdentity, an_address_beside_the_store_of_the_program_does_not_put_all_ranks_on_one_host) {
  InitOptions options = ranks_given(0, 2);
  options.store = std::make_shared<MemoryStore>();
  options.master_address = "localhost";
  EXPECT_EQ(found({}, options).master_address, "localhost");
  EXPECT_FALSE(on_one_host(found({}, options)));
}

TEST(LaunchIdentity, a_local_rank_that_chooses_a_device_is_no_error) {
  // A GPU a task: each process sees one device.
  const Variables one_device = {{"LOCAL_RANK", "0"}};
  EXPECT_EQ(found(open_mpi() + one_device).local_rank, 1);
  EXPECT_EQ(found(open_mpi() + one_device + Variables{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "1"}})
                .local_rank,
            1);
  const auto task = slurm({{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "1"}, {"RANK", "4"}, {"WORLD_SIZE", "5"}});
  expect_ranks(found(task + one_device), 4, 5, 1, 2);
  // A device of its own choice.
  for (const char* device : {"-1", "7", "cuda"}) {
    EXPECT_EQ(found(torchrun("1") + Variables{{"LOCAL_RANK", device}}).local_rank, -1) << device;
  }
}

TEST(LaunchIdentity, an_address_in_brackets_is_the_address) {
  EXPECT_EQ(found(torchrun("1") + Variables{{"MASTER_ADDR", "[fd77::1]"}}).master_address, "fd77::1");
  InitOptions options = ranks_given(0, 2);
  options.master_address = "[::1]";
  options.master_port = 1;
  EXPECT_EQ(found({}, options).master_address, "::1");
  EXPECT_TRUE(on_one_host(found({}, options)));
}

TEST(LaunchIdentity, half_a_set_names_the_missing_variable) {
  expect_invalid(discover(torchrun("1") - "RANK"), {"WORLD_SIZE is set but RANK is not"});
  expect_invalid(discover(torchrun("1") - "WORLD_SIZE"), {"RANK is set but WORLD_SIZE is not"});
  expect_invalid(discover(torchrun("1") - "MASTER_ADDR"), {"MASTER_ADDR is not set"});
  expect_invalid(discover(torchrun("1") - "MASTER_PORT"), {"MASTER_PORT is not set"});
  expect_invalid(discover({{"MASTER_ADDR", "node0"}}), {"MASTER_ADDR is set but RANK is not"});
  expect_invalid(discover({{"LOCAL_RANK", "1"}}), {"LOCAL_RANK is set but RANK is not"});
  expect_invalid(discover({{"PMIX_RANK", "1"}}), {"PMIX_RANK is set but the world size is not"});
}

TEST(LaunchIdentity, bad_numbers_name_the_variable_and_the_value) {
  expect_invalid(discover(torchrun("two")), {"RANK", "\"two\"", "0 to"});
  expect_invalid(discover(torchrun("-1")), {"RANK", "\"-1\""});
  expect_invalid(discover(torchrun("1 ")), {"RANK", "\"1 \""});
  expect_invalid(discover(torchrun("4")), {"RANK is 4 but WORLD_SIZE is 4"});
  const std::vector<std::vector<std::string>> cases = {{"WORLD_SIZE", "0"},
                                                       {"WORLD_SIZE", "99999999999999999999"},
                                                       {"MASTER_PORT", "65536", "1 to 65535"},
                                                       {"LOCAL_WORLD_SIZE", "5", "1 to 4"},
                                                       {"TORCHELASTIC_RESTART_COUNT", "x"}};
  for (const auto& texts : cases) expect_invalid(discover(torchrun("0") + Variables{{texts[0], texts[1]}}), texts);
  InitOptions options;
  options.rank = -3;
  expect_invalid(discover({}, options), {"InitOptions::rank", "\"-3\""});
}

TEST(LaunchIdentity, one_host_is_known_by_local_world_or_a_loopback_master) {
  EXPECT_FALSE(on_one_host(found(torchrun("1"))));
  EXPECT_TRUE(on_one_host(found(torchrun("1") + Variables{{"LOCAL_WORLD_SIZE", "4"}})));
  const auto unknown = torchrun("1") - "LOCAL_WORLD_SIZE";
  EXPECT_FALSE(on_one_host(found(unknown)));
  EXPECT_TRUE(on_one_host(found(unknown + Variables{{"MASTER_ADDR", "127.0.0.1"}})));
  EXPECT_FALSE(on_one_host(found(torchrun("1") + Variables{{"MASTER_ADDR", "localhost"}})));
}

// ---- Open MPI

TEST(LaunchIdentity, open_mpi_on_one_host_meets_at_a_socket_of_the_job) {
  const auto rank = found(open_mpi());
  expect_ranks(rank, 1, 2, 1, 2);
  EXPECT_EQ(rank.master_address, "");
  EXPECT_FALSE(rank.meeting_socket.empty());
  EXPECT_TRUE(on_one_host(rank));
  EXPECT_EQ(rank.source, "Open MPI (mpirun)");
  const auto socket_with = [](const Variables& more) { return found(open_mpi() + more).meeting_socket; };
  EXPECT_EQ(socket_with({{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}}), rank.meeting_socket);
  EXPECT_NE(socket_with({{"PMIX_NAMESPACE", "409993218"}}), rank.meeting_socket);
  EXPECT_NE(socket_with({{"PMIX_SERVER_URI2", "1.0;tcp4://127.0.0.1:1"}}), rank.meeting_socket);
}

TEST(LaunchIdentity, half_of_the_master_is_completed) {
  const auto port = found(open_mpi() + Variables{{"MASTER_PORT", "5000"}});
  EXPECT_EQ(port.meeting_socket, "");
  EXPECT_EQ(master_of(port), "127.0.0.1:5000");
  const auto address = found(open_mpi() + Variables{{"MASTER_ADDR", "node0"}});
  EXPECT_EQ(master_of(address), "node0:derived");
}

TEST(LaunchIdentity, open_mpi_on_several_hosts_looks_at_mpiruns_host) {
  const auto rank = found(open_mpi("1"));
  EXPECT_EQ(master_of(rank), "192.0.2.2:derived");
  EXPECT_TRUE(rank.master_is_guess);
  EXPECT_FALSE(on_one_host(rank));
  const auto given = found(open_mpi("1") + Variables{{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "1"}});
  EXPECT_EQ(given.master_address, "node0");
  EXPECT_FALSE(given.master_is_guess);
}

TEST(LaunchIdentity, open_mpi_without_its_daemon_asks_for_the_master) {
  const Variables bare = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  expect_invalid(discover(bare), {"MASTER_ADDR is not set", "mpirun -x MASTER_ADDR"});
}

// ---- PMI

TEST(LaunchIdentity, pmi_needs_the_connection_that_the_launcher_left) {
  const Variables variables = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  expect_invalid(discover(variables), {"PMI_FD is not", "-genv MASTER_ADDR"});
  expect_invalid(discover(variables + Variables{{"PMI_FD", "x"}}), {"PMI_FD is \"x\""});
  expect_invalid(discover(variables + Variables{{"PMI_FD", "999999"}}), {"PMI_FD=999999", "not open"});
  expect_ranks(found(variables + Variables{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}), 1, 2, 1, 2);
}

TEST(LaunchIdentity, pmi_on_one_host_is_known_by_the_other_end_of_its_connection) {
  const auto pair = os::socket_pair().take_or_throw();
  const Variables variables = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", std::to_string(pair.first.get())}};
  const auto one = found(variables + Variables{{"MPI_LOCALNRANKS", "2"}});
  EXPECT_FALSE(one.meeting_socket.empty());
  EXPECT_EQ(one.pmi_descriptor, -1);
  const auto several = found(variables + Variables{{"MPI_LOCALNRANKS", "1"}});
  EXPECT_TRUE(several.meeting_socket.empty());
  EXPECT_EQ(several.pmi_descriptor, pair.first.get());
  EXPECT_FALSE(on_one_host(several));
}

// ---- Slurm

TEST(LaunchIdentity, slurms_first_host_is_the_master) {
  const auto rank = found(slurm());
  expect_ranks(rank, 3, 5, 0, 2);
  EXPECT_EQ(master_of(rank), "gpu-a07:derived");
  EXPECT_NE(found(slurm({{"SLURM_STEP_ID", "1"}})).master_port, rank.master_port);
  EXPECT_EQ(found(slurm({{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "1"}})).master_port, rank.master_port);
}

TEST(LaunchIdentity, slurms_step_counts_before_its_job) {
  const auto rank = found(slurm({{"SLURM_STEP_NUM_TASKS", "4"},
                                 {"SLURM_STEP_NODELIST", "gpu-a08"},
                                 {"SLURM_STEP_TASKS_PER_NODE", "4"},
                                 {"SLURM_NODEID", "0"}}));
  expect_ranks(rank, 3, 4, 0, 4);
  EXPECT_EQ(rank.master_address, "gpu-a08");
  EXPECT_TRUE(on_one_host(rank));
}

TEST(LaunchIdentity, slurm_with_a_master_that_the_user_gives) {
  const auto rank = found(slurm({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29511"}}));
  EXPECT_EQ(master_of(rank), "10.0.0.1:29511");
}

TEST(LaunchIdentity, a_batch_script_itself_is_no_rank_of_slurm) {
  const Variables batch = slurm({{"ENVIRONMENT", "BATCH"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(found(batch).world, 5);
  EXPECT_EQ(found(batch - "SLURM_STEP_ID").world, 1);
}

TEST(LaunchIdentity, slurm_with_an_unreadable_list_of_hosts) {
  expect_invalid(discover(slurm({{"SLURM_JOB_NODELIST", "gpu-a[07-"}})),
                 {"SLURM_JOB_NODELIST", "gpu-a[07-", "export MASTER_ADDR"});
  expect_invalid(discover(slurm() - "SLURM_JOB_NODELIST"), {"MASTER_ADDR is not set", "before srun"});
}

// ---- AzureML and SageMaker

TEST(LaunchIdentity, azureml_on_one_node) {
  const auto rank = found(azureml("2"));
  expect_ranks(rank, 1, 2, 1, 2);
  EXPECT_EQ(master_of(rank), "node-0:54965");
  EXPECT_EQ(rank.interface_filter, "");
  EXPECT_EQ(rank.source, "AzureML (AZUREML_EXPERIMENT_ID, over Open MPI)");
}

TEST(LaunchIdentity, azureml_on_several_nodes) {
  const auto rank = found(azureml("1"));
  EXPECT_EQ(master_of(rank), "10.1.0.4:6105");
  EXPECT_EQ(rank.interface_filter, "^docker0,lo");
  EXPECT_FALSE(rank.master_is_guess);
  EXPECT_EQ(found(azureml("1") + Variables{{"MASTER_PORT", "7"}}).master_port, 7);
  EXPECT_EQ(found(azureml("1") + Variables{{"NCCL_SOCKET_IFNAME", "eth"}}).interface_filter, "eth");
  EXPECT_EQ(found(azureml("1") + Variables{{"DLTS_JOB_ID", "1"}}).source, "Open MPI (mpirun)");
  expect_invalid(discover(azureml("1") - "AZ_BATCH_MASTER_NODE"), {"AZ_BATCH_MASTER_NODE", "MASTER_ADDR"});
}

TEST(LaunchIdentity, sagemakers_first_host_is_the_master) {
  const auto rank = found(sagemaker("1"));
  EXPECT_EQ(master_of(rank), "algo-1:7777");
  EXPECT_EQ(rank.interface_filter, "=eth0");
  EXPECT_EQ(rank.filter_source, "SM_NETWORK_INTERFACE_NAME");
  EXPECT_EQ(found(sagemaker("2")).master_address, "127.0.0.1");
  EXPECT_EQ(found(sagemaker("1") + Variables{{"MASTER_ADDR", "algo-9"}}).master_address, "algo-9");
  expect_invalid(discover(sagemaker("1") + Variables{{"SM_HOSTS", "[]"}}), {"SM_HOSTS is \"[]\""});
}

// ---- others

TEST(LaunchIdentity, ranks_of_every_other_launcher_are_known) {
  const Variables master = {{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "1"}};
  const struct {
    const char* source;
    std::vector<std::string> names;  // rank, world, local rank and local world
  } cases[] = {
      {"MVAPICH2 (mpirun_rsh)",
       {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"}},
      {"JSM (jsrun)",
       {"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"}},
      {"Flux (flux run)", {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID"}},
      {"PALS (Cray's mpiexec)", {"PALS_RANKID", "PALS_NRANKS", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"}},
      {"Horovod (horovodrun)", {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"}},
  };
  for (const auto& [source, names] : cases) {
    Variables variables = {{names[0], "3"}, {names[1], "4"}, {names[2], "1"}};
    if (names.size() == 4) variables[names[3]] = "2";
    const auto rank = found(variables + master);
    expect_ranks(rank, 3, 4, 1, names.size() == 4 ? 2 : 0);
    EXPECT_EQ(rank.source, source);
    expect_invalid(discover(variables), {"MASTER_ADDR is not set", "MASTER_ADDR=HOST"});
    expect_invalid(discover(variables - names[0].c_str()), {names[1] + " is set but " + names[0] + " is not"});
    expect_invalid(discover(variables + Variables{{"WORLD_SIZE", "1"}}), {names[1] + " is 4", "WORLD_SIZE is 1"});
  }
}

TEST(LaunchIdentity, launchers_that_identify_the_job_let_ranks_of_one_host_meet_at_a_socket) {
  const Variables flux = {{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}, {"FLUX_JOB_NNODES", "1"}};
  const Variables pals = {{"PALS_RANKID", "1"}, {"PALS_NRANKS", "2"}, {"PALS_LOCAL_SIZE", "2"}};
  const Variables horovod = {{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}, {"HOROVOD_LOCAL_SIZE", "2"}};
  const struct {
    Variables variables, identity;
    const char* differs;
  } cases[] = {
      {flux, {{"FLUX_URI", "local:///tmp/flux-a/local-0"}, {"FLUX_JOB_ID", "f1"}}, "FLUX_JOB_ID"},
      {pals, {{"PALS_APID", "7c7a"}}, "PALS_APID"},
      {horovod,
       {{"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"}, {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4000"}},
       "HOROVOD_GLOO_RENDEZVOUS_PORT"},
  };
  for (const auto& [variables, identity, differs] : cases) {
    const auto rank = found(variables + identity);
    EXPECT_TRUE(on_one_host(rank));
    EXPECT_FALSE(rank.meeting_socket.empty());
    EXPECT_NE(found(variables + identity + Variables{{differs, "other"}}).meeting_socket, rank.meeting_socket);
    expect_invalid(discover(variables), {"MASTER_ADDR is not set"});
  }
}

// Rank 1 of 2 where a platform has prepared a torchrun on two nodes.
Variables torchrun_nodes(const Variables& more = {}) {
  return Variables{{"PET_NODE_RANK", "1"},
                   {"PET_NNODES", "2"},
                   {"PET_NPROC_PER_NODE", "1"},
                   {"PET_MASTER_ADDR", "job-node-0-0.job"},
                   {"PET_MASTER_PORT", "29400"}} +
         more;
}

TEST(LaunchIdentity, a_program_alone_on_each_node_of_a_torchrun_is_its_nodes_rank) {
  const auto rank = found(torchrun_nodes());
  expect_ranks(rank, 1, 2, 0, 1);
  EXPECT_EQ(master_of(rank), "job-node-0-0.job:29400");
  const auto endpoint =
      torchrun_nodes({{"PET_RDZV_ENDPOINT", "[fd77::1]:29401"}}) - "PET_MASTER_ADDR" - "PET_MASTER_PORT";
  EXPECT_EQ(master_of(found(endpoint)), "fd77::1:29401");
  const Variables group = {{"GROUP_RANK", "1"}, {"PET_NNODES", "2"}, {"PET_MASTER_ADDR", "a"}};
  EXPECT_EQ(master_of(found(group)), "a:29500");
  EXPECT_EQ(found({{"PET_NNODES", "1"}, {"PET_NPROC_PER_NODE", "8"}}).world, 1);
}

TEST(LaunchIdentity, nodes_contradict_only_a_rank_that_is_alone) {
  const Variables ranks = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}};
  EXPECT_EQ(found(torchrun_nodes(ranks)).rank, 5);
  EXPECT_EQ(found(torchrun_nodes(open_mpi())).world, 2);
  EXPECT_EQ(found(torchrun("3") + Variables{{"GROUP_RANK", "1"}, {"GROUP_WORLD_SIZE", "2"}}).rank, 3);
  expect_invalid(discover(torchrun_nodes({{"RANK", "1"}, {"WORLD_SIZE", "1"}})), {"RANK is 1 but WORLD_SIZE is 1"});
  expect_invalid(discover(torchrun_nodes({{"RANK", "0"}, {"WORLD_SIZE", "1"}})), {"RANK is 0", "PET_NODE_RANK is 1"});
  expect_invalid(discover(torchrun_nodes({{"PET_NODE_RANK", "0"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}})),
                 {"WORLD_SIZE is 1", "PET_NNODES is 2"});
}

TEST(LaunchIdentity, one_of_several_processes_without_a_rank_is_never_alone) {
  const struct {
    Variables variables;
    const char *index, *count;
  } cases[] = {
      {torchrun_nodes({{"PET_NODE_RANK", "0"}, {"PET_NPROC_PER_NODE", "8"}}), "PET_NODE_RANK", "PET_NNODES"},
      {torchrun_nodes({{"PET_NODE_RANK", "0"}, {"PET_NNODES", "1:4"}}), "PET_NODE_RANK", "PET_NNODES"},
      {{{"PET_RDZV_ENDPOINT", "a:1"}, {"PET_NNODES", "2"}}, "PET_RDZV_ENDPOINT", "PET_NNODES"},
      {{{"GROUP_RANK", "0"}, {"GROUP_WORLD_SIZE", "2"}, {"PET_NPROC_PER_NODE", "auto"}},
       "GROUP_RANK",
       "GROUP_WORLD_SIZE"},
      {{{"NODE_RANK", "0"}, {"NNODES", "2"}}, "NODE_RANK", "NNODES"},
      {slurm({{"SLURM_STEP_NUM_TASKS", "5"}}) - "SLURM_PROCID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"},
      {{{"SKYPILOT_NODE_RANK", "0"}, {"SKYPILOT_NUM_NODES", "2"}}, "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES"},
  };
  for (const auto& [variables, index, count] : cases) {
    expect_invalid(discover(variables), {std::string(index) + " is ", std::string(count) + " is ", "one of several"});
    EXPECT_EQ(found(variables, ranks_given(0, 1)).world, 1);
    EXPECT_EQ(found(variables + Variables{{count, "1"}}).world, 1) << count;
  }
}

// ---- several at once

TEST(LaunchIdentity, contradictions_name_both_variables) {
  const Variables stale = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  const struct {
    Variables variables;
    std::vector<std::string> texts;
  } cases[] = {
      {open_mpi() + stale, {"RANK is 0", "OMPI_COMM_WORLD_RANK is 1"}},
      {open_mpi() + Variables{{"RANK", "1"}, {"WORLD_SIZE", "3"}}, {"WORLD_SIZE is 3", "OMPI_COMM_WORLD_SIZE is 2"}},
      {open_mpi() + Variables{{"WORLD_SIZE", "4"}}, {"OMPI_COMM_WORLD_SIZE is 2", "WORLD_SIZE is 4"}},
      {open_mpi() + Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, {"OMPI_COMM_WORLD_RANK is 1", "PMI_RANK is 0"}},
      {open_mpi() + Variables{{"PMIX_RANK", "0"}}, {"OMPI_COMM_WORLD_RANK is 1", "PMIX_RANK is 0"}},
      {slurm() + stale, {"RANK is 0", "SLURM_PROCID is 3"}},
      {slurm({{"WORLD_SIZE", "1"}}), {"SLURM_NTASKS is 5", "WORLD_SIZE is 1"}},
      {slurm({{"PMIX_RANK", "0"}}), {"SLURM_PROCID is 3", "PMIX_RANK is 0"}},
  };
  for (const auto& [variables, texts] : cases) expect_invalid(discover(variables), texts);
}

TEST(LaunchIdentity, launchers_that_agree_complete_each_other) {
  const auto rank = found(slurm({{"RANK", "3"}, {"WORLD_SIZE", "5"}}));
  EXPECT_EQ(rank.master_address, "gpu-a07");
  expect_ranks(rank, 3, 5, 0, 2);
  EXPECT_EQ(found(slurm({{"WORLD_SIZE", "5"}})).source, "Slurm (srun)");
  const auto pmi = found(slurm({{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}, {"PMI_FD", "3"}}));
  EXPECT_EQ(pmi.master_address, "gpu-a07");
  EXPECT_EQ(pmi.pmi_descriptor, -1);
}

TEST(LaunchIdentity, a_launcher_inside_another_one_counts) {
  const Variables elastic = {{"RANK", "6"},        {"WORLD_SIZE", "10"},   {"LOCAL_RANK", "0"},
                             {"MASTER_ADDR", "a"}, {"MASTER_PORT", "500"}, {"TORCHELASTIC_RUN_ID", "none"}};
  EXPECT_EQ(found(slurm() + elastic).rank, 6);
  const Variables own = elastic - "TORCHELASTIC_RUN_ID";  // two processes for each of Slurm's five
  EXPECT_EQ(found(slurm() + own).rank, 6);
  expect_invalid(discover(slurm() + own + Variables{{"RANK", "5"}}), {"RANK is 5", "SLURM_PROCID is 3"});
  EXPECT_EQ(found(slurm() + open_mpi()).world, 2);
}

TEST(LaunchIdentity, every_source_says_why_it_was_not_taken) {
  std::map<std::string, std::string> reasons;
  for (const auto& source : list_sources({}, lookup_in(slurm() + open_mpi()))) {
    EXPECT_EQ(source.taken, source.name == "Open MPI");
    reasons[source.name] = source.reason;
  }
  EXPECT_EQ(reasons, (Variables{{"init() options", "none are given"},
                                {"torchrun", "RANK and WORLD_SIZE are not set"},
                                {"AzureML", "AZUREML_EXPERIMENT_ID is not set"},
                                {"SageMaker", "SM_TRAINING_ENV is not set"},
                                {"Open MPI", "OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2"},
                                {"MVAPICH2", "MV2_COMM_WORLD_RANK and MV2_COMM_WORLD_SIZE are not set"},
                                {"JSM", "JSM_NAMESPACE_RANK and JSM_NAMESPACE_SIZE are not set"},
                                {"Flux", "FLUX_TASK_RANK and FLUX_JOB_SIZE are not set"},
                                {"PALS", "PALS_RANKID and PALS_NRANKS are not set"},
                                {"Horovod", "HOROVOD_RANK and HOROVOD_SIZE are not set"},
                                {"PMI", "PMI_RANK and PMI_SIZE are not set"},
                                {"PMIx", "PMIX_RANK=1 does not say the world size"},
                                {"Slurm", "SLURM_PROCID=3, SLURM_NTASKS=5, but Open MPI comes first"},
                                {"torchrun's nodes", "PET_NNODES is not set"},
                                {"a single process", "something else does"}}));
  EXPECT_TRUE(list_sources({}, lookup_in({})).back().taken);
}

TEST(LaunchIdentity, nccls_variable_chooses_interfaces_where_qccls_is_not_set) {
  EXPECT_EQ(found(slurm({{"NCCL_SOCKET_IFNAME", "=ib0"}})).interface_filter, "=ib0");
  const auto both = found(slurm({{"NCCL_SOCKET_IFNAME", "=ib0"}, {"QCCL_SOCKET_IFNAME", "^lo"}}));
  EXPECT_EQ(both.interface_filter, "^lo");
  EXPECT_EQ(both.filter_source, "QCCL_SOCKET_IFNAME");
}

TEST(LaunchIdentity, gloos_variable_chooses_interfaces_in_gloos_place) {
  Variables variables{{"GLOO_SOCKET_IFNAME", "eth1,eth2"}, {"NCCL_SOCKET_IFNAME", "ib"}};
  EXPECT_EQ(found(slurm(variables)).interface_filter, "ib");
  variables["QCCL_REPLACE"] = "nccl";
  EXPECT_EQ(found(slurm(variables)).interface_filter, "ib");
  variables["QCCL_REPLACE"] = "nccl, Gloo";
  EXPECT_EQ(found(slurm(variables)).interface_filter, "=eth1,eth2") << "it lists whole names";
  EXPECT_EQ(found(slurm(variables)).filter_source, "GLOO_SOCKET_IFNAME");
  variables["QCCL_SOCKET_IFNAME"] = "=lo";
  EXPECT_EQ(found(slurm(variables)).interface_filter, "=lo");
}

}  // namespace
}  // namespace qccl::bootstrap
