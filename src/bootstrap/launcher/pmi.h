// The part of PMI-1 that tells ranks on several hosts where rank 0 is. MPICH's mpirun (Hydra), Intel MPI's and Slurm's
// PMI plugin answer these messages on the descriptor that they leave each process, one line each way:
//
//   cmd=init pmi_version=1 pmi_subversion=1        cmd=response_to_init ... rc=0
//   cmd=get_my_kvsname                             cmd=my_kvsname kvsname=NAME
//   cmd=put kvsname=NAME key=K value=V             cmd=put_result rc=0
//   cmd=barrier_in                                 cmd=barrier_out
//   cmd=get kvsname=NAME key=K                     cmd=get_result rc=0 value=V
//   cmd=finalize                                   cmd=finalize_ack
//
// The launcher ends a job if a process that sent init ends without finalize, and closes the connection at finalize. So
// a process can make this exchange only once: the answer is kept, and a later MPI_Init(), which needs the connection
// too, fails. On one host nothing is sent: the other end of the connection identifies the job.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "bootstrap/launcher/launch_identity.h"

namespace qccl::bootstrap {

// The same for all ranks of one host's job, and different for every other job. InvalidArgument if the launcher's
// connection is not open: a program between the launcher and this one may have closed it.
Result<std::string> pmi_identity(const EnvironmentLookup& lookup);

// The launcher's connection. InvalidArgument as above.
Result<int> pmi_descriptor(const EnvironmentLookup& lookup);

// True once pmi_share() has succeeded in this process.
bool pmi_has_shared();

// Gives all ranks the text of rank 0. The first call exchanges it; later calls return the same text again. At most 200
// characters without blanks and "=". The first call is collective over all ranks. DeadlineExceeded if ranks are
// missing, PeerLost if the launcher ends the connection, Unsupported if it speaks another protocol.
Result<std::string> pmi_share(int descriptor, int rank, const std::string& text, TimePoint deadline,
                              const Clock& clock);

}  // namespace qccl::bootstrap
