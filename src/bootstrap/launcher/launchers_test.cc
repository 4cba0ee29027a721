#include "bootstrap/launcher/launchers.h"

#include <gtest/gtest.h>

#include <map>

#include "os/net/unix_socket.h"

namespace qccl::bootstrap {
namespace {

using Variables = std::map<std::string, std::string>;

EnvironmentLookup lookup_in(Variables variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Result<Membership> discover(Variables variables, const InitOptions& options = {}) {
  return discover_membership(options, lookup_in(std::move(variables)));
}

Variables operator+(Variables variables, const Variables& added) {
  for (const auto& [name, value] : added) variables[name] = value;
  return variables;
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

void expect_invalid(const Result<Membership>& result, const std::vector<std::string>& words) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().kind, ErrorKind::invalid_argument);
  const std::string& message = result.error().message;
  for (const auto& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in: " << message;
}

void expect_place(const Membership& found, int rank, int world, int local_rank, int local_world) {
  EXPECT_EQ(found.rank, rank);
  EXPECT_EQ(found.world, world);
  EXPECT_EQ(found.local_rank, local_rank);
  EXPECT_EQ(found.local_world, local_world);
}

// ---- Open MPI

TEST(Launchers, open_mpi_on_one_host_meets_at_a_socket_of_the_job) {
  const auto found = discover(open_mpi()).take_or_throw();
  expect_place(found, 1, 2, 1, 2);
  EXPECT_EQ(found.master_address, "");
  EXPECT_FALSE(found.meeting_socket.empty());
  EXPECT_TRUE(on_one_host(found));
  EXPECT_EQ(found.source, "Open MPI (mpirun)");
  EXPECT_EQ(discover(open_mpi() + Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "0"}})->meeting_socket,
            found.meeting_socket);
  EXPECT_NE(discover(open_mpi() + Variables{{"PMIX_NAMESPACE", "409993218"}})->meeting_socket, found.meeting_socket);
  EXPECT_NE(discover(open_mpi() + Variables{{"PMIX_SERVER_URI2", "1.0;tcp4://127.0.0.1:1"}})->meeting_socket,
            found.meeting_socket);
}

TEST(Launchers, half_of_the_master_is_completed) {
  const auto port = discover(open_mpi() + Variables{{"MASTER_PORT", "5000"}}).take_or_throw();
  EXPECT_EQ(port.meeting_socket, "");
  EXPECT_EQ(port.master_address, "127.0.0.1");
  EXPECT_EQ(port.master_port, 5000);
  const auto address = discover(open_mpi() + Variables{{"MASTER_ADDR", "node0"}}).take_or_throw();
  EXPECT_EQ(address.master_address, "node0");
  EXPECT_GE(address.master_port, 10000);
  EXPECT_LT(address.master_port, 30000);
}

TEST(Launchers, open_mpi_on_several_hosts_looks_at_mpiruns_host) {
  const auto found = discover(open_mpi("1")).take_or_throw();
  EXPECT_EQ(found.master_address, "192.0.2.2");
  EXPECT_GE(found.master_port, 10000);
  EXPECT_TRUE(found.master_is_guess);
  EXPECT_FALSE(on_one_host(found));
  const auto told = discover(open_mpi("1") + Variables{{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "1"}}).take_or_throw();
  EXPECT_EQ(told.master_address, "node0");
  EXPECT_FALSE(told.master_is_guess);
}

TEST(Launchers, open_mpi_without_its_daemon_asks_for_the_master) {
  const Variables bare = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  expect_invalid(discover(bare), {"MASTER_ADDR is not set", "mpirun -x MASTER_ADDR"});
}

// ---- PMI

TEST(Launchers, pmi_needs_the_connection_that_the_launcher_left) {
  const Variables variables = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  expect_invalid(discover(variables), {"PMI_FD is not", "-genv MASTER_ADDR"});
  expect_invalid(discover(variables + Variables{{"PMI_FD", "x"}}), {"PMI_FD is \"x\""});
  expect_invalid(discover(variables + Variables{{"PMI_FD", "999999"}}), {"PMI_FD=999999", "not open"});
  const auto given = discover(variables + Variables{{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}).take_or_throw();
  expect_place(given, 1, 2, 1, 2);
}

TEST(Launchers, pmi_on_one_host_is_known_by_the_connections_other_end) {
  const auto pair = os::socket_pair().take_or_throw();
  const std::string descriptor = std::to_string(pair.first.get());
  const Variables variables = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", descriptor}};
  const auto one = discover(variables + Variables{{"MPI_LOCALNRANKS", "2"}}).take_or_throw();
  EXPECT_FALSE(one.meeting_socket.empty());
  EXPECT_EQ(one.pmi_descriptor, -1);
  const auto several = discover(variables + Variables{{"MPI_LOCALNRANKS", "1"}}).take_or_throw();
  EXPECT_TRUE(several.meeting_socket.empty());
  EXPECT_EQ(several.pmi_descriptor, pair.first.get());
  EXPECT_FALSE(on_one_host(several));
}

TEST(Launchers, pmix_alone_does_not_say_the_world_size) {
  expect_invalid(discover({{"PMIX_RANK", "1"}}), {"PMIX_RANK is set but the world size is not"});
}

// ---- Slurm

TEST(Launchers, slurms_first_host_is_the_master) {
  const auto found = discover(slurm()).take_or_throw();
  expect_place(found, 3, 5, 0, 2);
  EXPECT_EQ(found.master_address, "gpu-a07");
  EXPECT_GE(found.master_port, 10000);
  EXPECT_LT(found.master_port, 30000);
  EXPECT_NE(discover(slurm({{"SLURM_STEP_ID", "1"}}))->master_port, found.master_port);
  EXPECT_EQ(discover(slurm({{"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "1"}}))->master_port, found.master_port);
}

TEST(Launchers, slurms_step_counts_before_its_job) {
  const auto found = discover(slurm({{"SLURM_STEP_NUM_TASKS", "4"},
                                     {"SLURM_STEP_NODELIST", "gpu-a08"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "4"},
                                     {"SLURM_NODEID", "0"}}))
                         .take_or_throw();
  expect_place(found, 3, 4, 0, 4);
  EXPECT_EQ(found.master_address, "gpu-a08");
  EXPECT_TRUE(on_one_host(found));
}

TEST(Launchers, slurm_with_a_master_of_the_users) {
  const auto found = discover(slurm({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29511"}})).take_or_throw();
  EXPECT_EQ(found.master_address, "10.0.0.1");
  EXPECT_EQ(found.master_port, 29511);
}

TEST(Launchers, a_batch_script_itself_is_no_rank_of_slurms) {
  Variables batch = slurm({{"ENVIRONMENT", "BATCH"}, {"SLURM_PROCID", "0"}});
  EXPECT_EQ(discover(batch)->world, 5);
  batch.erase("SLURM_STEP_ID");
  EXPECT_EQ(discover(batch)->world, 1);
}

TEST(Launchers, slurm_with_a_list_that_can_not_be_read) {
  expect_invalid(discover(slurm({{"SLURM_JOB_NODELIST", "gpu-a[07-"}})),
                 {"SLURM_JOB_NODELIST", "gpu-a[07-", "export MASTER_ADDR"});
  Variables none = slurm();
  none.erase("SLURM_JOB_NODELIST");
  expect_invalid(discover(none), {"MASTER_ADDR is not set", "before srun"});
}

// ---- AzureML and SageMaker

TEST(Launchers, azureml_on_one_node) {
  const auto found = discover(azureml("2")).take_or_throw();
  expect_place(found, 1, 2, 1, 2);
  EXPECT_EQ(found.master_address, "node-0");
  EXPECT_EQ(found.master_port, 54965);
  EXPECT_EQ(found.interface_filter, "");
  EXPECT_EQ(found.source, "AzureML (AZUREML_EXPERIMENT_ID, over Open MPI)");
}

TEST(Launchers, azureml_on_several_nodes) {
  const auto found = discover(azureml("1")).take_or_throw();
  EXPECT_EQ(found.master_address, "10.1.0.4");
  EXPECT_EQ(found.master_port, 6105);
  EXPECT_EQ(found.interface_filter, "^docker0,lo");
  EXPECT_FALSE(found.master_is_guess);
  EXPECT_EQ(discover(azureml("1") + Variables{{"MASTER_PORT", "7"}})->master_port, 7);
  EXPECT_EQ(discover(azureml("1") + Variables{{"NCCL_SOCKET_IFNAME", "eth"}})->interface_filter, "eth");
  EXPECT_EQ(discover(azureml("1") + Variables{{"DLTS_JOB_ID", "1"}})->source, "Open MPI (mpirun)");
}

TEST(Launchers, azureml_that_does_not_name_the_master_node) {
  Variables variables = azureml("1");
  variables.erase("AZ_BATCH_MASTER_NODE");
  expect_invalid(discover(variables), {"AZ_BATCH_MASTER_NODE", "MASTER_ADDR"});
}

TEST(Launchers, sagemakers_first_host_is_the_master) {
  const auto found = discover(sagemaker("1")).take_or_throw();
  EXPECT_EQ(found.master_address, "algo-1");
  EXPECT_EQ(found.master_port, 7777);
  EXPECT_EQ(found.interface_filter, "=eth0");
  EXPECT_EQ(found.filter_source, "SM_NETWORK_INTERFACE_NAME");
  EXPECT_EQ(discover(sagemaker("2"))->master_address, "127.0.0.1");
  EXPECT_EQ(discover(sagemaker("1") + Variables{{"MASTER_ADDR", "algo-9"}})->master_address, "algo-9");
  expect_invalid(discover(sagemaker("1") + Variables{{"SM_HOSTS", "[]"}}), {"SM_HOSTS is \"[]\""});
}

// ---- several at once

TEST(Launchers, contradictions_name_both_variables) {
  const Variables stale = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  expect_invalid(discover(open_mpi() + stale), {"RANK is 0", "OMPI_COMM_WORLD_RANK is 1"});
  expect_invalid(discover(open_mpi() + Variables{{"RANK", "1"}, {"WORLD_SIZE", "3"}}),
                 {"WORLD_SIZE is 3", "OMPI_COMM_WORLD_SIZE is 2"});
  expect_invalid(discover(open_mpi() + Variables{{"WORLD_SIZE", "4"}}),
                 {"OMPI_COMM_WORLD_SIZE is 2", "WORLD_SIZE is 4"});
  expect_invalid(discover(open_mpi() + Variables{{"LOCAL_RANK", "0"}}),
                 {"OMPI_COMM_WORLD_LOCAL_RANK is 1", "LOCAL_RANK is 0"});
  expect_invalid(discover(open_mpi() + Variables{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}),
                 {"LOCAL_RANK is 0", "OMPI_COMM_WORLD_LOCAL_RANK is 1"});
  expect_invalid(discover(open_mpi() + Variables{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}),
                 {"OMPI_COMM_WORLD_RANK is 1", "PMI_RANK is 0"});
  expect_invalid(discover(slurm() + stale), {"RANK is 0", "SLURM_PROCID is 3"});
  expect_invalid(discover(open_mpi() + Variables{{"PMIX_RANK", "0"}}), {"OMPI_COMM_WORLD_RANK is 1", "PMIX_RANK is 0"});
}

TEST(Launchers, those_that_agree_complete_each_other) {
  const auto found = discover(slurm({{"RANK", "3"}, {"WORLD_SIZE", "5"}})).take_or_throw();
  EXPECT_EQ(found.master_address, "gpu-a07");
  expect_place(found, 3, 5, 0, 2);
  EXPECT_EQ(discover(slurm({{"WORLD_SIZE", "5"}}))->source, "Slurm (srun)");
  const auto pmi = discover(slurm({{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}, {"PMI_FD", "3"}})).take_or_throw();
  EXPECT_EQ(pmi.master_address, "gpu-a07");
  EXPECT_EQ(pmi.pmi_descriptor, -1);
}

TEST(Launchers, a_launcher_inside_another_one_is_believed) {
  const Variables torchrun = {{"RANK", "6"},        {"WORLD_SIZE", "10"},   {"LOCAL_RANK", "0"},
                              {"MASTER_ADDR", "a"}, {"MASTER_PORT", "500"}, {"TORCHELASTIC_RUN_ID", "none"}};
  EXPECT_EQ(discover(slurm() + torchrun)->rank, 6);
  Variables own = torchrun;  // two processes for each of Slurm's five
  own.erase("TORCHELASTIC_RUN_ID");
  EXPECT_EQ(discover(slurm() + own)->rank, 6);
  own["RANK"] = "5";
  expect_invalid(discover(slurm() + own), {"RANK is 5", "SLURM_PROCID is 3"});
  EXPECT_EQ(discover(slurm() + open_mpi())->world, 2);
}

TEST(Launchers, what_the_program_says_wins_without_a_word) {
  InitOptions options;
  options.rank = 0;
  options.world = 7;
  options.master_address = "b";
  options.master_port = 9;
  const auto found = discover(open_mpi(), options).take_or_throw();
  expect_place(found, 0, 7, -1, 0);
  EXPECT_EQ(found.master_address, "b");
}

TEST(Launchers, every_source_says_why_it_was_not_taken) {
  const auto sources = list_sources({}, lookup_in(slurm() + open_mpi()));
  std::map<std::string, std::string> reasons;
  for (const auto& source : sources) {
    EXPECT_EQ(source.taken, source.name == "Open MPI");
    reasons[source.name] = source.reason;
  }
  EXPECT_EQ(reasons["init() options"], "none are given");
  EXPECT_EQ(reasons["torchrun"], "RANK and WORLD_SIZE are not set");
  EXPECT_EQ(reasons["AzureML"], "AZUREML_EXPERIMENT_ID is not set");
  EXPECT_EQ(reasons["SageMaker"], "SM_TRAINING_ENV is not set");
  EXPECT_EQ(reasons["Open MPI"], "OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2");
  EXPECT_EQ(reasons["PMI"], "PMI_RANK and PMI_SIZE are not set");
  EXPECT_EQ(reasons["PMIx"], "PMIX_RANK=1 does not say the world size");
  EXPECT_EQ(reasons["Slurm"], "SLURM_PROCID=3, SLURM_NTASKS=5, but Open MPI comes first");
  EXPECT_TRUE(list_sources({}, lookup_in({})).back().taken);
}

TEST(Launchers, nccls_variable_chooses_interfaces_where_qccls_is_not_set) {
  EXPECT_EQ(discover(slurm({{"NCCL_SOCKET_IFNAME", "=ib0"}}))->interface_filter, "=ib0");
  const auto both = discover(slurm({{"NCCL_SOCKET_IFNAME", "=ib0"}, {"QCCL_SOCKET_IFNAME", "^lo"}})).take_or_throw();
  EXPECT_EQ(both.interface_filter, "^lo");
  EXPECT_EQ(both.filter_source, "QCCL_SOCKET_IFNAME");
}

}  // namespace
}  // namespace qccl::bootstrap
