// Serves the page of a job over HTTP.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "dashboard/http/http_server.h"
#include "dashboard/job_view.h"

namespace qccl::dashboard {

// "127.0.0.1:8265", "[::1]:0", "node1:8265", ":8265" (this host alone). InvalidArgument for other texts. An address
// that other hosts reach gets a fresh token.
Result<HttpOptions> parse_address(const std::string& text);

// Serves from its construction to its destruction. `view` must outlive it.
class Dashboard {
 public:
  // Prometheus' text for /metrics; empty: there is no such document.
  using Metrics = std::function<std::string()>;

  // Unsupported where libqccl_http.so, or the HTTP library that it needs, is missing; InvalidArgument if the address
  // can't be listened on.
  static Result<std::unique_ptr<Dashboard>> open(const HttpOptions& options, const JobView& view, Metrics metrics = {});
  ~Dashboard();
  Dashboard(const Dashboard&) = delete;
  Dashboard& operator=(const Dashboard&) = delete;

  // What to open in a browser, with the token if there is one.
  const std::string& url() const { return url_; }

 private:
  Dashboard(const JobView& view, Metrics metrics);

  std::unique_ptr<Site> site_;
  std::unique_ptr<HttpServer> server_;
  std::string url_;
};

}  // namespace qccl::dashboard
