#include "secure/encrypted_socket.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace qccl::secure {
namespace {

constexpr std::byte kAlert{0x15};

int result_of(const os::IoResult& io) {
  if (io.ok()) return static_cast<int>(io.bytes);
  return io.lost() ? 0 : -1;
}

}  // namespace

int EncryptedSocket::read(Bytes target) {
  if (input_.empty()) {
    last_read_ = os::read_some(fd_, target);
    return in_handshake_ ? read_handshake(target) : result_of(last_read_);
  }
  if (input_begin_ == input_end_) {
    last_read_ = os::read_some(fd_, input_);
    if (!last_read_.ok()) return result_of(last_read_);
    input_begin_ = 0;
    input_end_ = last_read_.bytes;
  }
  const std::size_t taken = std::min(target.size(), input_end_ - input_begin_);
  std::memcpy(target.data(), input_.data() + input_begin_, taken);
  input_begin_ += taken;
  return static_cast<int>(taken);
}

int EncryptedSocket::read_handshake(Bytes target) {
  if (!last_read_.ok()) return result_of(last_read_);
  if (handshake_bytes_ == 0) speaks_tls_ = target[0] == kFirstByte || target[0] == kAlert;
  handshake_bytes_ += last_read_.bytes;
  return is_flooded() ? 0 : result_of(last_read_);
}

bool EncryptedSocket::write(ConstBytes source) {
  try {
    output_.insert(output_.end(), source.begin(), source.end());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

os::IoResult EncryptedSocket::send() {
  os::IoResult io;
  while (output_begin_ < output_.size()) {
    io = os::write_some(fd_, ConstBytes(output_).subspan(output_begin_));
    if (!io.ok()) return io;
    output_begin_ += io.bytes;
  }
  output_.clear();
  output_begin_ = 0;
  return io;
}

void EncryptedSocket::use_buffers(std::size_t bytes) {
  input_.resize(bytes);
  output_.reserve(bytes);
}

}  // namespace qccl::secure
