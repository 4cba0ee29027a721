// The states of ranks as JSON, between the processes of a job and to those that ask: the fields of qccl/status.h under
// their names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "qccl/status.h"

namespace qccl::internal {

// The longest answer of one rank to a process of its host, of one rank to another, and for a whole job.
inline constexpr std::size_t kMostStatusBytes = 256 * 1024;
inline constexpr std::size_t kMostPeerStatusBytes = 16 * 1024;
inline constexpr std::size_t kMostJobStatusBytes = 16 * 1024 * 1024;

// At most `limit` bytes: leaves out what does not fit, the ends of the longest lists first.
std::string encode_status(RankStatus status, std::size_t limit = kMostStatusBytes);
std::string encode_statuses(const std::vector<RankStatus>& ranks);

// Sets the fields that the text has, its strings printable. CorruptData if the text is no status; what was read so far
// stays. A stranger's text: whatever it is, memory is in proportion to its length.
Status decode_status(std::string_view text, RankStatus& status);
Result<std::vector<RankStatus>> decode_statuses(std::string_view text);

}  // namespace qccl::internal
