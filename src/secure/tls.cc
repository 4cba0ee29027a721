#include "secure/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace qccl::secure {
namespace {

constexpr std::size_t kRecordBytes = 16384;     // of plain text: TLS's limit
constexpr std::size_t kRecordOverhead = 5 + 17;  // header; content type and tag
constexpr std::size_t kBatchRecords = 4;         // encrypted before they are sent, so that they stay in cache
constexpr std::size_t kBatchBytes = kBatchRecords * kRecordBytes;
constexpr std::size_t kReadAheadBytes = kBatchRecords * (kRecordBytes + kRecordOverhead) + 1024;  // and new keys
constexpr std::uint64_t kRekeyBytes = std::uint64_t{1} << 36;  // a sixth of AES-GCM's limit for full records
constexpr unsigned char kAes128Gcm[] = {0x13, 0x01};

Tls* owner(SSL* ssl) { return static_cast<Tls*>(SSL_get_app_data(ssl)); }

}  // namespace

// What OpenSSL calls. No exception may cross it.
struct Callbacks {
  static SSL_SESSION* session_of(SSL* ssl, const Secret& secret) {
    SSL_SESSION* const session = ::SSL_SESSION_new();
    const SSL_CIPHER* const cipher = ::SSL_CIPHER_find(ssl, kAes128Gcm);
    const auto* const bytes = reinterpret_cast<const unsigned char*>(secret.bytes().data());
    const bool is_made = session != nullptr && cipher != nullptr &&
                         ::SSL_SESSION_set1_master_key(session, bytes, Secret::kBytes) == 1 &&
                         ::SSL_SESSION_set_cipher(session, cipher) == 1 &&
                         ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
    if (is_made) return session;
    ::SSL_SESSION_free(session);
    return nullptr;
  }

  static int use_session(SSL* ssl, const EVP_MD*, const unsigned char** identity, std::size_t* bytes,
                         SSL_SESSION** session) {
    const Credentials& own = owner(ssl)->credentials_;
    *session = session_of(ssl, own.secret);
    *identity = reinterpret_cast<const unsigned char*>(own.identity.data());
    *bytes = own.identity.size();
    return *session != nullptr ? 1 : 0;
  }

  static int find_session(SSL* ssl, const unsigned char* identity, std::size_t bytes, SSL_SESSION** session) {
    Tls& self = *owner(ssl);
    try {
      const std::string_view text(reinterpret_cast<const char*>(identity), bytes);
      Result<Secret> secret = self.find_(text);
      if (secret) {
        self.identity_ = text;
        *session = session_of(ssl, *secret);
      } else {
        self.refusal_ = secret.error().message;
      }
    } catch (const std::bad_alloc&) {
      self.refusal_.clear();
    }
    return *session != nullptr ? 1 : 0;
  }

  static int read(BIO* bio, char* target, int bytes) {
    BIO_clear_retry_flags(bio);
    auto& self = *static_cast<Tls*>(::BIO_get_data(bio));
    const int got = self.fill(reinterpret_cast<std::byte*>(target), static_cast<std::size_t>(bytes));
    if (got < 0) BIO_set_retry_read(bio);
    return got < 0 ? -1 : got;
  }

  static int write(BIO* bio, const char* source, int bytes) {
    auto& self = *static_cast<Tls*>(::BIO_get_data(bio));
    return self.keep(std::as_bytes(std::span(source, static_cast<std::size_t>(bytes)))) ? bytes : -1;
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  // Made once; never freed, because connections may end after it would be.
  static const BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* const method = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "qccl");
      if (method == nullptr) return method;
      ::BIO_meth_set_read(method, read);
      ::BIO_meth_set_write(method, write);
      ::BIO_meth_set_ctrl(method, control);
      return method;
    }();
    return made;
  }

  static SSL_CTX* make_context() {
    SSL_CTX* const context = ::SSL_CTX_new(::TLS_method());
    if (context == nullptr) return nullptr;
    ::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    ::SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256");
    SSL_CTX_set1_groups_list(context, "X25519");
    ::SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
    ::SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    ::SSL_CTX_set_num_tickets(context, 0);
    ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    ::SSL_CTX_set_psk_use_session_callback(context, use_session);
    ::SSL_CTX_set_psk_find_session_callback(context, find_session);
    return context;
  }
  static SSL_CTX* context() {
    static SSL_CTX* const made = make_context();
    return made;
  }
};

void Tls::FreeSsl::operator()(ssl_st* ssl) const { ::SSL_free(ssl); }

Tls::Tls(int fd, bool is_server) : fd_(fd), is_server_(is_server), rekey_interval_(kRekeyBytes) {}
Tls::~Tls() { wipe(record_); }

Result<std::unique_ptr<Tls>> Tls::client(int fd, Credentials credentials) {
  std::unique_ptr<Tls> made(new Tls(fd, false));
  QCCL_TRY(made->open(std::move(credentials), {}));
  return made;
}

Result<std::unique_ptr<Tls>> Tls::server(int fd, FindSecret find) {
  std::unique_ptr<Tls> made(new Tls(fd, true));
  QCCL_TRY(made->open({}, std::move(find)));
  return made;
}

Status Tls::open(Credentials credentials, FindSecret find) {
  credentials_ = std::move(credentials);
  identity_ = credentials_.identity;
  find_ = std::move(find);
  SSL_CTX* const context = Callbacks::context();
  const BIO_METHOD* const method = Callbacks::method();
  if (context != nullptr && method != nullptr) ssl_.reset(::SSL_new(context));
  BIO* const bio = ssl_ != nullptr ? ::BIO_new(method) : nullptr;
  if (bio == nullptr) return Failure(ErrorKind::resource_exhausted, "no memory for a TLS connection");
  ::BIO_set_data(bio, this);
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  is_server_ ? ::SSL_set_accept_state(ssl_.get()) : ::SSL_set_connect_state(ssl_.get());
  return {};
}

// ---- the handshake

Result<bool> Tls::shake_hands() {
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_.get());
  const os::IoResult sent = send_encrypted();
  if (sent.lost()) return Failure(ErrorKind::peer_lost, os::describe(sent) + " during the handshake");
  if (result != 1) {
    if (::SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ) return false;
    return failed_handshake();
  }
  if (!output_.empty()) return false;
  is_done_ = true;
  credentials_ = {};
  find_ = nullptr;
  return true;
}

Failure Tls::failed_handshake() {
  const auto reason = ERR_GET_REASON(::ERR_peek_last_error());
  ::ERR_clear_error();
  if (last_read_.lost()) return Failure(ErrorKind::peer_lost, os::describe(last_read_) + " during the handshake");
  if (!speaks_tls_) return Failure(ErrorKind::corrupt_data, "speaks no TLS");
  if (handshake_bytes_ > kMaxHandshakeBytes) return Failure(ErrorKind::corrupt_data, "sent too much for a handshake");
  if (!refusal_.empty()) return Failure(ErrorKind::misuse, refusal_);
  if (is_server_ && reason == SSL_R_BINDER_DOES_NOT_VERIFY) return Failure(ErrorKind::misuse, "has another key");
  const bool is_alert = reason >= SSL_AD_REASON_OFFSET;
  if (is_alert && !is_server_) return Failure(ErrorKind::misuse, "refused this rank's key");
  const char* const words = ::ERR_reason_error_string(static_cast<unsigned long>(reason));
  return Failure(ErrorKind::corrupt_data,
                 std::string("sent no valid TLS handshake (") + (words == nullptr ? "?" : words) + ")");
}

// ---- bytes from and to the socket

// The number of bytes; 0 at the end, -1 if there are none now.
int Tls::fill(std::byte* target, std::size_t bytes) {
  if (input_begin_ == input_end_ && !input_.empty()) {
    last_read_ = os::read_some(fd_, input_);
    input_begin_ = 0;
    input_end_ = last_read_.bytes;
  }
  if (!input_.empty()) {
    const std::size_t taken = std::min(bytes, input_end_ - input_begin_);
    if (taken == 0) return last_read_.lost() ? 0 : -1;
    std::memcpy(target, input_.data() + input_begin_, taken);
    input_begin_ += taken;
    return static_cast<int>(taken);
  }
  last_read_ = os::read_some(fd_, Bytes(target, bytes));
  if (!is_done_ && last_read_.ok()) {
    if (handshake_bytes_ == 0 && target[0] != kFirstByte && target[0] != std::byte{0x15}) speaks_tls_ = false;
    handshake_bytes_ += last_read_.bytes;
    if (handshake_bytes_ > kMaxHandshakeBytes) return 0;
  }
  if (last_read_.ok()) return static_cast<int>(last_read_.bytes);
  return last_read_.lost() ? 0 : -1;
}

bool Tls::keep(ConstBytes encrypted) {
  try {
    output_.insert(output_.end(), encrypted.begin(), encrypted.end());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

os::IoResult Tls::send_encrypted() {
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

// ---- plain text

void Tls::read_ahead() {
  input_.resize(kReadAheadBytes);
  output_.reserve(kReadAheadBytes);
  record_.resize(kRecordBytes);
}

os::IoResult Tls::read_record(Bytes target) {
  std::size_t bytes = 0;
  ::ERR_clear_error();
  const int result = ::SSL_read_ex(ssl_.get(), target.data(), target.size(), &bytes);
  if (result == 1) return {.bytes = bytes};
  const int why = ::SSL_get_error(ssl_.get(), result);
  if (why == SSL_ERROR_WANT_READ) return {.would_block = true};
  if (last_read_.error != 0) return {.error = last_read_.error};
  if (why == SSL_ERROR_ZERO_RETURN || last_read_.closed) return {.closed = true};
  return os::changed_on_the_way();
}

os::IoResult Tls::read_some(Bytes first, Bytes second) {
  os::IoResult total;
  has_input_ = false;
  for (const Bytes part : {first, second}) {
    for (std::size_t filled = 0; filled < part.size();) {
      const os::IoResult io = read_record(part.subspan(filled));
      if (!io.ok()) return total.ok() ? total : io;
      filled += io.bytes;
      total.bytes += io.bytes;
    }
  }
  has_input_ = true;
  return total;
}

os::IoResult Tls::write_some(std::span<const ConstBytes> pieces) {
  std::size_t taken = 0;
  for (;;) {
    const os::IoResult sent = send_encrypted();
    if (sent.lost()) return sent;
    if (!output_.empty()) return {.bytes = taken, .would_block = taken == 0};
    taken += std::exchange(encrypted_ahead_, 0);
    encrypted_ahead_ = encrypt(pieces, taken);
    if (is_broken_) return os::out_of_memory();
    if (encrypted_ahead_ == 0) return {.bytes = taken, .would_block = taken == 0};
  }
}

// Makes records of the pieces' bytes from `skip` on: the header of a frame shares its first one with the payload.
std::size_t Tls::encrypt(std::span<const ConstBytes> pieces, std::size_t skip) {
  std::size_t encrypted = 0, staged = 0;
  record_.resize(kRecordBytes);
  for (ConstBytes piece : pieces) {
    const std::size_t skipped = std::min(skip, piece.size());
    piece = piece.subspan(skipped);
    skip -= skipped;
    while (!piece.empty() && encrypted < kBatchBytes) {
      const std::size_t bytes = std::min(piece.size(), kRecordBytes - staged);
      const bool is_whole = bytes == kRecordBytes;
      if (!is_whole) std::memcpy(record_.data() + staged, piece.data(), bytes);
      staged += bytes;
      if (staged == kRecordBytes) encrypted += encrypt_record(is_whole ? piece.first(bytes) : ConstBytes(record_));
      staged %= kRecordBytes;
      piece = piece.subspan(bytes);
    }
  }
  if (staged > 0) encrypted += encrypt_record(ConstBytes(record_).first(staged));
  return encrypted;
}

std::size_t Tls::encrypt_record(ConstBytes plain) {
  since_rekey_ += plain.size();
  ::ERR_clear_error();
  if (since_rekey_ > rekey_interval_) {
    is_broken_ |= ::SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1;
    since_rekey_ = 0;
  }
  std::size_t bytes = 0;
  is_broken_ |= ::SSL_write_ex(ssl_.get(), plain.data(), plain.size(), &bytes) != 1;
  return bytes;
}

}  // namespace qccl::secure
