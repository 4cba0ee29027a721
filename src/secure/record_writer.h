// Makes TLS records of plain bytes that lie in several places: full ones, because each costs a header, a tag and a
// call. A frame's header so shares a record with the beginning of its payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"

struct ssl_st;

namespace qccl::secure {

class RecordWriter {
 public:
  static constexpr std::size_t kRecordBytes = 16384;      // of plain text: TLS's limit
  static constexpr std::size_t kRecordOverhead = 5 + 17;  // header; content type and tag
  // Encrypted before they are sent, so that they stay in cache.
  static constexpr std::size_t kBatchRecords = 4;

  // Encrypts the pieces' bytes from `skip` on, about kBatchRecords at most. The number of bytes; is_broken() if it
  // failed.
  std::size_t encrypt(ssl_st* ssl, std::span<const ConstBytes> pieces, std::size_t skip);
  bool is_broken() const { return is_broken_; }
  // Takes the memory that encrypt() needs.
  void reserve() { staged_.resize(kRecordBytes); }
  void set_rekey_interval(std::uint64_t bytes) { rekey_interval_ = bytes; }
  ~RecordWriter();

 private:
  std::size_t encrypt_record(ssl_st* ssl, ConstBytes plain);

  std::vector<std::byte> staged_;
  bool is_broken_ = false;
  std::uint64_t since_rekey_ = 0;
  // A sixth of AES-GCM's limit, 2^24 full records.
  std::uint64_t rekey_interval_ = std::uint64_t{1} << 35;
};

}  // namespace qccl::secure
