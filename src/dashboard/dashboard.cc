#include "dashboard/dashboard.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "os/process.h"

namespace qccl::dashboard {

extern const char* const kPage;  // page.html

namespace {

using std::chrono::milliseconds;

// ---- What is served

std::string event(const char* name, const std::string& json) {
  return fmt::format("event: {}\ndata: {}\n\n", name, json);
}

// A page gets each document when it has changed, with a pause of kPause after each.
class JobEvents final : public EventSource {
 public:
  explicit JobEvents(const JobView& view) : view_(view) {}

  std::string next() override {
    std::this_thread::sleep_for(due_ - clock_.now());
    const JobView::Versions latest = view_.wait(seen_, kPatience);
    std::string text;
    if (latest.job != seen_.job) text += event("job", view_.job_json());
    if (latest.gauges != seen_.gauges) text += event("gauges", view_.gauges_json());
    if (latest.messages != seen_.messages) text += event("messages", view_.messages_json());
    seen_ = latest;
    if (!text.empty()) due_ = clock_.now() + kPause;
    return text;
  }

 private:
  static constexpr milliseconds kPatience{100};
  static constexpr milliseconds kPause{300};

  const JobView& view_;
  SteadyClock clock_;
  JobView::Versions seen_{};
  TimePoint due_{};
};

// The number of milliseconds that the parameter has, as nanoseconds.
std::optional<std::int64_t> time_in(const Site::Parameters& parameters, const char* name) {
  constexpr double kMost = 1e12;  // 30 years
  const auto found = parameters.find(name);
  const auto ms = found == parameters.end() ? std::nullopt : parse_number<double>(found->second);
  if (!ms || !(std::abs(*ms) <= kMost)) return std::nullopt;
  return static_cast<std::int64_t>(*ms * 1e6);
}

int number_in(const Site::Parameters& parameters, const char* name, int otherwise) {
  const auto found = parameters.find(name);
  return found == parameters.end() ? otherwise : parse_number<int>(found->second).value_or(otherwise);
}

class JobSite final : public Site {
 public:
  JobSite(const JobView& view, Dashboard::Metrics metrics) : view_(view), metrics_(std::move(metrics)) {}

  std::string page(const std::string& nonce) override {
    static constexpr std::string_view kPlace = "NONCE";
    std::string page = kPage;
    for (std::size_t at = page.find(kPlace); at != std::string::npos; at = page.find(kPlace, at + nonce.size())) {
      page.replace(at, kPlace.size(), nonce);
    }
    return page;
  }

  HttpReply document(const std::string& path, const Parameters& parameters) override {
    if (path == "/timeline") return timeline(parameters);
    if (path == "/metrics" && metrics_) return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = metrics_()};
    return {.status = 404, .type = "text/plain", .body = "there is no such document\n"};
  }

  std::unique_ptr<EventSource> events() override { return std::make_unique<JobEvents>(view_); }

 private:
  HttpReply timeline(const Parameters& parameters) const {
    const auto from = time_in(parameters, "from");
    const auto to = time_in(parameters, "to");
    if (!from || !to || *from > *to) {
      return {.status = 400, .type = "text/plain", .body = "from and to are milliseconds, from <= to\n"};
    }
    return {.body = view_.timeline_json({.span = {*from, *to},
                                         .bins = number_in(parameters, "bins", 800),
                                         .first_lane = number_in(parameters, "lane", 0),
                                         .lanes = number_in(parameters, "lanes", 128)})};
  }

  const JobView& view_;
  const Dashboard::Metrics metrics_;
};

// ---- The module

// Where the linker looks for libraries of the program or library that has this code.
void* load_module(std::string& problem) {
  void* const module = ::dlopen(kHttpModule, RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    const char* const why = ::dlerror();
    problem = why == nullptr ? "unknown" : why;
  }
  return module;
}

// A name that begins with 127 may belong to anyone: only addresses count.
bool is_loopback(const std::string& host) {
  const bool is_address = host.find_first_not_of("0123456789.") == std::string::npos;
  return host == "localhost" || host == "::1" || (is_address && host.starts_with("127."));
}

}  // namespace

Result<HttpOptions> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string_view digits = colon == std::string::npos ? "" : std::string_view(text).substr(colon + 1);
  const int port = parse_number<int>(digits).value_or(-1);
  std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty()) host = "127.0.0.1";
  if (port < 0 || port > 65535) {
    return Failure(
        ErrorKind::invalid_argument,
        fmt::format("'{}' is no address of the page: give HOST:PORT, such as 127.0.0.1:8265, with port 0 for "
                    "a free one",
                    printable(text)));
  }
  HttpOptions options{.host = host, .port = port, .is_loopback = is_loopback(host)};
  if (!options.is_loopback) options.token = fmt::format("{:016x}{:016x}", os::random_nonce(), os::random_nonce());
  return options;
}

Dashboard::Dashboard(const JobView& view, Metrics metrics)
    : site_(std::make_unique<JobSite>(view, std::move(metrics))) {}
Dashboard::~Dashboard() = default;

Result<std::unique_ptr<Dashboard>> Dashboard::open(const HttpOptions& options, const JobView& view, Metrics metrics) {
  std::string problem;
  void* module = load_module(problem);
  void* symbol = module == nullptr ? nullptr : ::dlsym(module, kOpenHttpServer);
  if (symbol == nullptr) {
    return Failure(
        ErrorKind::unsupported,
        fmt::format("the page can't be served: its HTTP server can't be loaded ({}): install libcpp-httplib, and "
                    "build QCCL where libcpp-httplib-dev is",
                    problem));
  }
  std::unique_ptr<Dashboard> self(new Dashboard(view, std::move(metrics)));
  reinterpret_cast<OpenHttpServer*>(symbol)(options, *self->site_, problem, self->server_);
  if (self->server_ == nullptr) {
    return Failure(ErrorKind::invalid_argument, fmt::format("the page can't be served at {}:{}: {}",
                                                            printable(options.host), options.port, problem));
  }
  const bool is_v6 = options.host.find(':') != std::string::npos;
  self->url_ = fmt::format("http://{}{}{}:{}/", is_v6 ? "[" : "", printable(options.host), is_v6 ? "]" : "",
                           self->server_->port());
  if (!options.token.empty()) self->url_ += "?token=" + options.token;
  return self;
}

}  // namespace qccl::dashboard
