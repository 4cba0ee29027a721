// The HTTP server of the page: GET only, a few documents, one stream of events a page. Built as a module of its own,
// libqccl_http.so, which open_http_server() loads: without the page neither the library nor the program needs an HTTP
// library.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace qccl::dashboard {

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body{};
};

// One page's stream of events.
class EventSource {
 public:
  virtual ~EventSource() = default;
  // Waits a quarter of a second at most. Returns events in the format of text/event-stream, or nothing.
  virtual std::string next() = 0;
};

// What is served. Called on the server's threads, several at a time.
class Site {
 public:
  using Parameters = std::multimap<std::string, std::string>;

  virtual ~Site() = default;
  // The page, whose scripts and styles carry `nonce`.
  virtual std::string page(const std::string& nonce) = 0;
  // Any other document.
  virtual HttpReply document(const std::string& path, const Parameters& parameters) = 0;
  virtual std::unique_ptr<EventSource> events() = 0;
};

struct HttpOptions {
  std::string host;         // an address or name of this host
  int port = 0;             // 0: a free one
  bool is_loopback = true;  // only names of this host are taken for the server's name: no other site reaches it by DNS
  std::string token{};      // "": none is asked for
};

// Serves from its construction to its destruction, on threads of its own.
class HttpServer {
 public:
  virtual ~HttpServer() = default;
  virtual int port() const = 0;
};

// The module's only symbol. `site` must outlive the server. On failure `opened` stays empty, and `problem` says why.
using OpenHttpServer = void(const HttpOptions& options, Site& site, std::string& problem,
                            std::unique_ptr<HttpServer>& opened);
inline constexpr const char* kHttpModule = "libqccl_http.so";
inline constexpr const char* kOpenHttpServer = "qccl_open_http_server_1";

}  // namespace qccl::dashboard
