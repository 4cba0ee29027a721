#include "job/job_page.h"

#include <fmt/format.h>

#include <new>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace qccl::comm {
namespace {

constexpr Milliseconds kLookEvery(500);
constexpr Milliseconds kLookPatience(300);  // with ranks that do not answer

}  // namespace

Status JobPage::check(const std::string& address) {
  const auto options = dashboard::parse_address(address);
  if (options.ok()) return {};
  return Failure(ErrorKind::invalid_argument, fmt::format("QCCL_DASHBOARD: {}", options.error().message));
}

JobPage::JobPage(JobSurvey& survey, std::shared_ptr<const internal::LogStore> log)
    : survey_(survey), log_(std::move(log)) {
  view_.set_source("running job");
}

std::unique_ptr<JobPage> JobPage::open(const std::string& address, JobSurvey& survey,
                                       std::shared_ptr<const internal::LogStore> log) {
  auto options = dashboard::parse_address(address);
  if (!options.ok()) return nullptr;  // check() has refused it
  std::unique_ptr<JobPage> page(new JobPage(survey, std::move(log)));
  auto opened = dashboard::Dashboard::open(*options, page->view_, [self = page.get()] { return self->metrics(); });
  if (!opened.ok()) {
    qccl::log(LogLevel::error, fmt::format("QCCL_DASHBOARD: {}", opened.error().message));
    return nullptr;
  }
  page->dashboard_ = std::move(*opened);
  write_line(fmt::format("qccl: the page of this job is {}", page->dashboard_->url()));
  page->thread_ = std::thread([self = page.get()] { self->serve(); });
  return page;
}

JobPage::~JobPage() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void JobPage::serve() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    try {
      look();
    } catch (const std::bad_alloc&) {  // the page stays as it was
    }
    lock.lock();
    stop_.wait_for(lock, kLookEvery, [this] { return stopping_; });
  }
}

void JobPage::look() {
  std::vector<RankStatus> states = survey_.all(kLookPatience);
  const bool is_logging = log_->is_on();
  if (is_logging) {
    const RankLog fresh = log_->read_since(seen_);
    view_.add_rank(fresh);
    for (const RoundRecord& round : fresh.rounds) view_.add(fresh.rank, round);
    for (const GaugeRecord& gauge : fresh.gauges) view_.add(fresh.rank, gauge);
  }
  view_.add_states(states, time_of_day());
  const std::lock_guard lock(mutex_);
  states_ = std::move(states);
}

std::string JobPage::metrics() const {
  const std::lock_guard lock(mutex_);
  return to_prometheus(states_);
}

}  // namespace qccl::comm
