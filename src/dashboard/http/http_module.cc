// libqccl_http.so: HttpServer by cpp-httplib (https://github.com/yhirose/cpp-httplib), the only file that sees it.
//
// Each open page holds a thread of the pool while it listens to events, so their number is limited. Connections serve
// one request: at the end of the server nothing waits for a browser to close an idle one.
#include <httplib.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <atomic>
#include <csignal>
#include <string_view>
#include <thread>

#include "dashboard/http/http_server.h"

namespace qccl::dashboard {
namespace {

constexpr int kThreads = 16;
constexpr int kMostPages = 10;
constexpr int kSilentRounds = 8;  // quarters of a second, after which a comment shows whether the page still listens
constexpr const char* kCookie = "qccl_token=";

// 128 bits in hexadecimal, from the kernel.
std::string random_text() {
  unsigned char bytes[16];
  if (::getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw std::runtime_error("no random numbers");
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// In a time that tells nothing of where they differ.
bool equals(std::string_view given, std::string_view secret) {
  if (given.size() != secret.size()) return false;
  unsigned char difference = 0;
  for (std::size_t i = 0; i < given.size(); ++i) difference |= static_cast<unsigned char>(given[i] ^ secret[i]);
  return difference == 0;
}

// "localhost:80" to "localhost".
std::string_view name_of(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  return colon == std::string_view::npos || host.find(']', colon) != std::string_view::npos ? host
                                                                                            : host.substr(0, colon);
}

bool is_loopback_name(std::string_view name) {
  const bool is_address = name.find_first_not_of("0123456789.") == std::string_view::npos;
  return name == "localhost" || name == "[::1]" || (is_address && name.starts_with("127."));
}

// The constructor of httplib::Server makes the whole process ignore SIGPIPE. This undoes it; the server's threads block
// the signal instead.
class KeepsPipeSignal {
 public:
  KeepsPipeSignal() { ::sigaction(SIGPIPE, nullptr, &before_); }
  ~KeepsPipeSignal() { ::sigaction(SIGPIPE, &before_, nullptr); }
  KeepsPipeSignal(const KeepsPipeSignal&) = delete;
  KeepsPipeSignal& operator=(const KeepsPipeSignal&) = delete;

 private:
  struct sigaction before_ {};
};

// Threads that begin during its life block all signals: those are the program's.
class BlocksSignals {
 public:
  BlocksSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlocksSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlocksSignals(const BlocksSignals&) = delete;
  BlocksSignals& operator=(const BlocksSignals&) = delete;

 private:
  sigset_t before_{};
};

class Server final : public HttpServer {
 public:
  Server(const HttpOptions& options, Site& site) : options_(options), site_(site) {}
  ~Server() override {
    is_stopping_ = true;
    if (!thread_.joinable()) return;
    while (!server_.is_running() && !has_ended_) std::this_thread::yield();
    server_.stop();
    thread_.join();
  }

  bool open() {
    configure();
    port_ = options_.port == 0                                   ? server_.bind_to_any_port(options_.host)
            : server_.bind_to_port(options_.host, options_.port) ? options_.port
                                                                 : -1;
    if (port_ <= 0) return false;
    const BlocksSignals blocked;
    thread_ = std::thread([this] {
      server_.listen_after_bind();
      has_ended_ = true;
    });
    return true;
  }
  int port() const override { return port_; }

 private:
  using Handled = httplib::Server::HandlerResponse;

  void configure() {
    server_.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    // Not SO_REUSEPORT, the library's own choice: two servers would share the port's connections.
    server_.set_socket_options([](int socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    server_.set_keep_alive_max_count(1);
    server_.set_read_timeout(5);
    server_.set_write_timeout(5);
    server_.set_idle_interval(0, 100'000);
    server_.set_payload_max_length(0);
    server_.set_tcp_nodelay(true);
    server_.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response);
      return Handled::Handled;
    });
  }

  void answer(const httplib::Request& request, httplib::Response& response) {
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("Referrer-Policy", "no-referrer");
    response.set_header("Cross-Origin-Resource-Policy", "same-origin");
    if (request.method != "GET") return refuse(response, 405, "only GET is served");
    const std::string host = request.get_header_value("Host");
    if (options_.is_loopback && !is_loopback_name(name_of(host))) {
      return refuse(response, 403, "this server is reached as localhost, 127.0.0.1 or [::1]");
    }
    if (!options_.token.empty() && !admit(request, response)) return;
    if (request.path == "/") return send_page(response);
    if (request.path == "/events") return send_events(response);
    HttpReply reply = site_.document(request.path, request.params);
    response.status = reply.status;
    response.set_content(std::move(reply.body), reply.type.c_str());
  }

  static void refuse(httplib::Response& response, int status, const char* why) {
    response.status = status;
    response.set_content(std::string(why) + "\n", "text/plain");
  }

  // Whether the request has the token: as "Authorization: Bearer TOKEN", in the cookie, or as ?token=TOKEN of the page.
  // The last is answered with the cookie and a redirection, so that the token does not stay in the browser's history.
  bool admit(const httplib::Request& request, httplib::Response& response) const {
    const std::string bearer = request.get_header_value("Authorization");
    if (bearer.starts_with("Bearer ") && equals(bearer.substr(7), options_.token)) return true;
    const std::string cookies = request.get_header_value("Cookie");
    for (std::size_t at = cookies.find(kCookie); at != std::string::npos; at = cookies.find(kCookie, at + 1)) {
      const std::size_t begin = at + std::string_view(kCookie).size();
      if (equals(cookies.substr(begin, cookies.find(';', begin) - begin), options_.token)) return true;
    }
    if (request.path == "/" && equals(request.get_param_value("token"), options_.token)) {
      response.set_header("Set-Cookie", kCookie + options_.token + "; HttpOnly; SameSite=Strict; Path=/");
      response.set_redirect("/", 303);
      return false;
    }
    response.set_header("WWW-Authenticate", "Bearer");
    refuse(response, 401, "a token is needed: open the address that the program printed");
    return false;
  }

  void send_page(httplib::Response& response) {
    const std::string nonce = random_text();
    response.set_header("Content-Security-Policy",
                        "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce +
                            "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                            "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'");
    response.set_content(site_.page(nonce), "text/html; charset=utf-8");
  }

  void send_events(httplib::Response& response) {
    if (++pages_ > kMostPages) {
      --pages_;
      return refuse(response, 503, "too many pages are open");
    }
    const std::shared_ptr<EventSource> source = site_.events();
    const auto silent = std::make_shared<int>(0);
    response.set_chunked_content_provider(
        "text/event-stream",
        [this, source, silent](std::size_t, httplib::DataSink& sink) {
          if (is_stopping_) return false;
          std::string text = source->next();
          if (text.empty() && ++*silent < kSilentRounds) return true;
          *silent = 0;
          if (text.empty()) text = ":\n\n";
          return sink.write(text.data(), text.size());
        },
        [this](bool) { --pages_; });
  }

  const HttpOptions options_;
  Site& site_;
  std::atomic<bool> is_stopping_{false};
  std::atomic<bool> has_ended_{false};
  std::atomic<int> pages_{0};
  int port_ = -1;
  httplib::Server server_;
  std::thread thread_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void qccl_open_http_server_1(const HttpOptions& options, Site& site,
                                                                               std::string& problem,
                                                                               std::unique_ptr<HttpServer>& opened) {
  const KeepsPipeSignal keeps;
  try {
    auto server = std::make_unique<Server>(options, site);
    if (server->open()) {
      opened = std::move(server);
    } else {
      problem = "the address can't be listened on: it is in use, or not one of this host";
    }
  } catch (const std::exception& error) {
    problem = error.what();
  }
}

}  // namespace qccl::dashboard
