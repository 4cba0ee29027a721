#include "secure/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <new>
#include <utility>

namespace qccl::secure {
namespace {

Failure without_key() { return Failure(ErrorKind::corrupt_data, "shows a certificate in place of this job's key"); }

// One record more than a batch: new keys, and a rest.
constexpr std::size_t kBufferBytes =
    (RecordWriter::kBatchRecords + 1) * (RecordWriter::kRecordBytes + RecordWriter::kRecordOverhead);
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
    const int got = self.socket_.read(std::as_writable_bytes(std::span(target, static_cast<std::size_t>(bytes))));
    if (got < 0) BIO_set_retry_read(bio);
    return got < 0 ? -1 : got;
  }

  static int write(BIO* bio, const char* source, int bytes) {
    auto& self = *static_cast<Tls*>(::BIO_get_data(bio));
    return self.socket_.write(std::as_bytes(std::span(source, static_cast<std::size_t>(bytes)))) ? bytes : -1;
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

  // A server may leave out the client's key and show a certificate instead. None is good enough.
  static int refuse_certificate(X509_STORE_CTX*, void*) { return 0; }

  static SSL_CTX* make_context() {
    SSL_CTX* const context = ::SSL_CTX_new(::TLS_method());
    if (context == nullptr) return nullptr;
    const bool is_restricted = ::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                               ::SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1 &&
                               SSL_CTX_set1_groups_list(context, "X25519") == 1;
    if (!is_restricted) {
      ::SSL_CTX_free(context);
      return nullptr;
    }
    ::SSL_CTX_set_cert_verify_callback(context, refuse_certificate, nullptr);
    ::SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT | SSL_OP_ALLOW_NO_DHE_KEX);
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

Tls::Tls(int fd, bool is_server) : socket_(fd), is_server_(is_server) {}
Tls::~Tls() = default;

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
  if (bio == nullptr)
    return Failure(ErrorKind::resource_exhausted,
                   "no memory for a TLS connection, or OpenSSL has no AES-128-GCM and X25519 for it");
  ::BIO_set_data(bio, this);
  ::BIO_set_init(bio, 1);
  ::SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  is_server_ ? ::SSL_set_accept_state(ssl_.get()) : ::SSL_set_connect_state(ssl_.get());
  ::SSL_set_verify(ssl_.get(), is_server_ ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  return {};
}

// ---- the handshake

Result<bool> Tls::shake_hands() {
  ::ERR_clear_error();
  const int result = ::SSL_do_handshake(ssl_.get());
  const os::IoResult sent = socket_.send();
  if (result != 1) {
    const bool waits = ::SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ && socket_.speaks_tls();
    if (!waits) return failed_handshake();
    if (!sent.lost()) return false;
  }
  if (sent.lost()) return Failure(ErrorKind::peer_lost, os::describe(sent) + " during the handshake");
  if (!socket_.is_empty()) return false;
  if (::SSL_session_reused(ssl_.get()) != 1) return without_key();
  socket_.end_handshake();
  credentials_ = {};
  find_ = nullptr;
  return true;
}

Failure Tls::failed_handshake() {
  const auto reason = ERR_GET_REASON(::ERR_peek_last_error());
  ::ERR_clear_error();
  const os::IoResult& last = socket_.last_read();
  if (!socket_.speaks_tls()) return Failure(ErrorKind::corrupt_data, "speaks no TLS");
  if (last.lost()) return Failure(ErrorKind::peer_lost, os::describe(last) + " during the handshake");
  if (socket_.is_flooded()) return Failure(ErrorKind::corrupt_data, "sent too much for a handshake");
  if (!refusal_.empty()) return Failure(ErrorKind::misuse, refusal_);
  if (is_server_ && reason == SSL_R_BINDER_DOES_NOT_VERIFY) return Failure(ErrorKind::misuse, "has another key");
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED) return without_key();
  const bool is_alert = reason >= SSL_AD_REASON_OFFSET;
  if (is_alert && !is_server_) return Failure(ErrorKind::misuse, "refused this rank's key");
  const char* const words = ::ERR_reason_error_string(static_cast<unsigned long>(reason));
  return Failure(ErrorKind::corrupt_data,
                 std::string("sent no valid TLS handshake (") + (words == nullptr ? "?" : words) + ")");
}

// ---- plain text

void Tls::read_ahead() {
  socket_.use_buffers(kBufferBytes);
  writer_.reserve();
}

// A connection that has failed stays so, for reads and writes.
os::IoResult Tls::read_record(Bytes target) {
  if (failure_.lost()) return failure_;
  std::size_t bytes = 0;
  ::ERR_clear_error();
  const int result = ::SSL_read_ex(ssl_.get(), target.data(), target.size(), &bytes);
  if (result == 1) return {.bytes = bytes};
  const int why = ::SSL_get_error(ssl_.get(), result);
  if (why == SSL_ERROR_WANT_READ) return {.would_block = true};
  ::ERR_clear_error();  // the program may use OpenSSL in this thread, too
  const os::IoResult& last = socket_.last_read();
  const bool is_end = why == SSL_ERROR_ZERO_RETURN || last.closed;
  if (is_end && last.error == 0) return {.closed = true};
  failure_ = last.error != 0 ? os::IoResult{.error = last.error} : os::changed_on_the_way();
  return failure_;
}

os::IoResult Tls::read_some(Bytes first, Bytes second) {
  os::IoResult total;
  has_input_ = false;
  for (const Bytes part : {first, second}) {
    for (std::size_t filled = 0; filled < part.size();) {
      const os::IoResult io = read_record(part.subspan(filled));
      if (!io.ok()) {
        has_input_ = total.ok() && io.lost();  // the next read says why
        return total.ok() ? total : io;
      }
      filled += io.bytes;
      total.bytes += io.bytes;
    }
  }
  has_input_ = ::SSL_has_pending(ssl_.get()) == 1 || socket_.has_input();
  return total;
}

os::IoResult Tls::write_some(std::span<const ConstBytes> pieces) {
  if (failure_.lost()) return failure_;
  std::size_t taken = 0;
  for (;;) {
    const os::IoResult sent = socket_.send();
    if (sent.lost()) return sent;
    if (!socket_.is_empty()) return {.bytes = taken, .would_block = taken == 0};
    taken += std::exchange(encrypted_ahead_, 0);
    encrypted_ahead_ = writer_.encrypt(ssl_.get(), pieces, taken);
    if (writer_.is_broken()) return os::out_of_memory();
    if (encrypted_ahead_ == 0) return {.bytes = taken, .would_block = taken == 0};
  }
}

}  // namespace qccl::secure
