#include "secure/record_writer.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>

#include "secure/key.h"

namespace qccl::secure {

RecordWriter::~RecordWriter() { wipe(staged_); }

std::size_t RecordWriter::encrypt(ssl_st* ssl, std::span<const ConstBytes> pieces, std::size_t skip) {
  std::size_t encrypted = 0, staged = 0;
  reserve();
  for (ConstBytes piece : pieces) {
    const std::size_t skipped = std::min(skip, piece.size());
    piece = piece.subspan(skipped);
    skip -= skipped;
    while (!piece.empty() && encrypted < kBatchRecords * kRecordBytes) {
      const std::size_t bytes = std::min(piece.size(), kRecordBytes - staged);
      const bool is_whole = bytes == kRecordBytes;
      if (!is_whole) std::memcpy(staged_.data() + staged, piece.data(), bytes);
      staged += bytes;
      if (staged == kRecordBytes) encrypted += encrypt_record(ssl, is_whole ? piece.first(bytes) : ConstBytes(staged_));
      staged %= kRecordBytes;
      piece = piece.subspan(bytes);
    }
  }
  if (staged > 0) encrypted += encrypt_record(ssl, ConstBytes(staged_).first(staged));
  return encrypted;
}

std::size_t RecordWriter::encrypt_record(ssl_st* ssl, ConstBytes plain) {
  since_rekey_ += plain.size();
  ::ERR_clear_error();
  if (since_rekey_ > rekey_interval_) {
    is_broken_ |= ::SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1;
    since_rekey_ = 0;
  }
  std::size_t bytes = 0;
  is_broken_ |= ::SSL_write_ex(ssl, plain.data(), plain.size(), &bytes) != 1;
  if (is_broken_) ::ERR_clear_error();
  return bytes;
}

}  // namespace qccl::secure
