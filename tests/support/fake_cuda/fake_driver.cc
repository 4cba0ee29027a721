#include "support/fake_cuda/fake_driver.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "base/options.h"

std::uint64_t SharedQueue::add() {
  const std::lock_guard lock(mutex_);
  return added_++;
}

void SharedQueue::await_turn(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ == number; });
}

void SharedQueue::end_turn() {
  const std::lock_guard lock(mutex_);
  ++ended_;
  changed_.notify_all();
}

CUstream_st::CUstream_st(int device, std::uint64_t seed, std::chrono::microseconds longest_delay, SharedQueue& queue)
    : device_(device),
      id_(qccl::device::fake::driver().queues.next_stream_id()),
      longest_delay_(longest_delay),
      queue_(queue),
      random_(seed),
      thread_([this] { run(); }) {}

void CUstream_st::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    held_ = false;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CUstream_st::add(std::function<void()> item) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(in_turn(std::move(item)));
    ++added_;
  }
  changed_.notify_all();
}

// In a context with a fault it does nothing.
std::function<void()> CUstream_st::in_turn(std::function<void()> item) {
  return [this, number = queue_.add(), item = std::move(item)] {
    queue_.await_turn(number);
    if (qccl::device::fake::driver().devices.fault(device_) == qccl::device::Code::success) item();
    queue_.end_turn();
  };
}

void CUstream_st::set_held(bool held) {
  {
    const std::lock_guard lock(mutex_);
    held_ = held;
  }
  changed_.notify_all();
}

void CUstream_st::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&, until = added_] { return ended_ >= until; });
}

void CUstream_st::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || (!items_.empty() && !held_); });
    if (items_.empty()) return;
    const auto item = std::move(items_.front());
    items_.pop_front();
    lock.unlock();
    const auto longest = static_cast<std::uint64_t>(longest_delay_.count());
    std::this_thread::sleep_for(std::chrono::microseconds(longest == 0 ? 0 : random_() % (longest + 1)));
    item();
    lock.lock();
    ++ended_;
    changed_.notify_all();
  }
}

namespace qccl::device::fake {
namespace {

constexpr std::chrono::microseconds kDefaultStreamsDelay{200};

// Address ranges of devices are whole pages.
std::size_t pages(std::size_t bytes) { return (std::max<std::size_t>(bytes, 1) + 4095) / 4096 * 4096; }

std::byte* reserve_addresses(std::size_t bytes) {
  return static_cast<std::byte*>(
      ::mmap(nullptr, pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
}

std::byte* make_storage(std::size_t bytes) {
  auto* const storage = static_cast<std::byte*>(std::malloc(std::max<std::size_t>(bytes, 1)));
  std::fill_n(storage, bytes, kPoison);
  return storage;
}

// An item may still use it when the program frees it: the bytes live as long as the last item.
void free_allocation(Allocation* allocation) {
  if (allocation->address != allocation->storage) ::munmap(allocation->address, pages(allocation->bytes));
  if (allocation->kind != Kind::registered) std::free(allocation->storage);
  delete allocation;
}

// The allocation in a map by address that contains the range.
template <class Map>
std::shared_ptr<Allocation> find_in(const Map& allocations, const void* memory, std::size_t bytes) {
  const auto* const address = static_cast<const std::byte*>(memory);
  const auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return nullptr;
  const auto& [begin, found] = *std::prev(after);
  return address + bytes <= begin + found->bytes ? found : nullptr;
}

}  // namespace

bool Allocation::is_written(DevicePointer memory, std::size_t bytes) const {
  return written.empty() || std::memchr(written.data() + offset_of(memory), 0, bytes) == nullptr;
}

void Allocation::note_written(DevicePointer memory, std::size_t bytes) {
  if (!written.empty()) std::fill_n(written.data() + offset_of(memory), bytes, 1);
}

void Allocation::note_copied(DevicePointer memory, const Allocation& other, DevicePointer from, std::size_t bytes) {
  if (other.written.empty()) return note_written(memory, bytes);
  if (!written.empty()) {
    std::memmove(written.data() + offset_of(memory), other.written.data() + other.offset_of(from), bytes);
  }
}

std::size_t queues_of_environment() {
  const std::string count = environment("CUDA_DEVICE_MAX_CONNECTIONS").value_or("");
  if (count.empty() || !std::ranges::all_of(count, [](char c) { return c >= '0' && c <= '9'; })) return kQueues;
  return std::clamp<std::size_t>(std::strtoul(count.c_str(), nullptr, 10), 1, kMostQueues);
}

// Never destroyed, because threads of the program may outlive main().
FakeDriver& driver() {
  static auto* const only = new FakeDriver;
  return *only;
}

FakeDriver::FakeDriver() {
  const std::string failing = environment("FAKE_CUDA_FAIL").value_or("");
  const std::size_t end = failing.find('=');
  if (end != std::string::npos)
    faults.order_failure(failing.substr(0, end), static_cast<Code>(std::stoi(failing.substr(end + 1))), 0);
}

SharedQueue& Queues::next_queue(int device) {
  OfDevice& own = devices_[static_cast<std::size_t>(device)];
  return own.queues[own.next++ % count_];
}

Devices::Devices(Queues& queues) : queues_(queues) {
  for (int device = 0; device < kMostDevices; ++device) contexts_[device].device = device;
}

bool Devices::is_context(const CUctx_st* context) const {
  return context >= contexts_ && context < contexts_ + device_count_;
}

std::shared_ptr<CUstream_st> Devices::default_stream(int device) {
  const std::lock_guard lock(mutex_);
  auto& stream = default_streams_[static_cast<std::size_t>(device)];
  if (stream == nullptr) {
    stream = std::make_shared<CUstream_st>(device, 0, kDefaultStreamsDelay, queues_.first_queue(device));
  }
  return stream;
}

bool Devices::is_default_stream(const CUstream_st* handle) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(default_streams_, [&](const auto& stream) { return stream.get() == handle; });
}

Code Faults::misuse(const std::string& what) {
  const std::lock_guard lock(mutex_);
  misuses_.push_back(what);
  if (const auto file = environment("FAKE_CUDA_MISUSES")) std::ofstream(*file, std::ios::app) << what << std::endl;
  return Code::invalid_value;
}

std::vector<std::string> Faults::take_misuses() {
  const std::lock_guard lock(mutex_);
  return std::exchange(misuses_, {});
}

void Faults::order_failure(const std::string& function, Code code, int calls) {
  const std::lock_guard lock(mutex_);
  failures_[function] = {code, calls};
}

Code Faults::next_result(const std::string& function) {
  const std::lock_guard lock(mutex_);
  const auto found = failures_.find(function);
  if (found == failures_.end() || found->second.calls-- > 0) return Code::success;
  const Code code = found->second.code;
  failures_.erase(found);
  return code;
}

CUmod_st* Modules::make_module(const void* image, const std::shared_ptr<ptx::Module>& compiled) {
  const std::lock_guard lock(mutex_);
  auto made = std::make_unique<CUmod_st>();
  made->image = image;
  for (std::size_t i = 0; i < made->functions.size(); ++i) {
    made->functions[i] = {static_cast<kernels::device::Entry>(i), compiled};
  }
  CUmod_st* const handle = made.get();
  modules_[handle] = std::move(made);
  return handle;
}

std::vector<const void*> Modules::loaded_images() {
  const std::lock_guard lock(mutex_);
  std::vector<const void*> images;
  for (const auto& [handle, module] : modules_) images.push_back(module->image);
  return images;
}

bool Modules::is_alive(CUmod_st* module) {
  const std::lock_guard lock(mutex_);
  return modules_.contains(module);
}

bool Modules::destroy(CUmod_st* module) {
  const std::lock_guard lock(mutex_);
  return modules_.erase(module) > 0;
}

Code FakeDriver::current_device(int& device) {
  const std::lock_guard lock(mutex_);
  const auto entry = current_.find(std::this_thread::get_id());
  if (entry == current_.end() || entry->second.empty()) return Code::invalid_context;
  device = entry->second.back()->device;
  return Code::success;
}

Code FakeDriver::begin(const char* function, int& device) {
  if (hazards.has(Hazard::locking_free)) const std::lock_guard lock(hazards.waiting());
  if (const Code ordered = faults.next_result(function); ordered != Code::success) return ordered;
  if (current_device(device) == Code::success) return devices.fault(device);
  static_cast<void>(faults.misuse(std::string(function) + " without a context"));
  return Code::invalid_context;
}

Code FakeDriver::give_back(const char* function, const char* what, const std::function<bool(int device)>& end) {
  int device = 0;
  const Code code = begin(function, device);
  if (code != devices.fault(device)) return code;
  return end(device) ? code : faults.misuse(std::string(function) + " of " + what);
}

CUstream_st* FakeDriver::usable(const char* function, CUstream_st* handle, Code& code) {
  int device = 0;
  code = begin(function, device);
  if (code != Code::success) return nullptr;
  CUstream_st* const found = stream(handle, device);
  if (found == nullptr) {
    code = faults.misuse(std::string(function) + " of no stream");
  } else if (found->device() != device) {
    code = faults.misuse(std::string(function) + " of another device's stream");
  } else {
    return found;
  }
  return nullptr;
}

Code FakeDriver::push(CUctx_st* context) {
  if (!devices.is_context(context)) return faults.misuse("cuCtxPushCurrent of no context");
  const std::lock_guard lock(mutex_);
  current_[std::this_thread::get_id()].push_back(context);
  return Code::success;
}

Code FakeDriver::pop(CUctx_st** context) {
  {
    const std::lock_guard lock(mutex_);
    const auto entry = current_.find(std::this_thread::get_id());
    if (entry != current_.end() && !entry->second.empty()) {
      *context = entry->second.back();
      entry->second.pop_back();
      if (entry->second.empty()) current_.erase(entry);
      return Code::success;
    }
  }
  return faults.misuse("cuCtxPopCurrent without a context");
}

CUstream_st* FakeDriver::make_stream(int device, bool is_library) {
  const std::lock_guard lock(mutex_);
  auto made = std::make_shared<CUstream_st>(device, seed_++, longest_delay_, queues.next_queue(device));
  CUstream_st* const handle = made.get();
  streams_[handle] = std::move(made);
  if (is_library) library_streams_.push_back(handle);
  return handle;
}

std::vector<CUstream_st*> FakeDriver::library_streams() {
  const std::lock_guard lock(mutex_);
  return library_streams_;
}

CUstream_st* FakeDriver::stream(CUstream_st* handle, int device) {
  if (handle == nullptr) return devices.default_stream(device).get();
  if (devices.is_default_stream(handle)) return handle;
  const std::lock_guard lock(mutex_);
  return streams_.contains(handle) ? handle : nullptr;
}

// Others may wait for it.
bool FakeDriver::destroy(CUstream_st* stream) {
  std::shared_ptr<CUstream_st> ended;
  {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    if (found == streams_.end()) return false;
    ended = std::move(found->second);
    streams_.erase(found);
    std::erase(library_streams_, stream);
  }
  ended->end();
  return true;
}

bool FakeDriver::any_captures(int device) {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(
      streams_, [&](const auto& stream) { return stream.second->device() == device && stream.second->captures; });
}

CUevent_st* FakeDriver::make_event() {
  const std::lock_guard lock(mutex_);
  auto made = std::make_unique<CUevent_st>();
  CUevent_st* const handle = made.get();
  events_[handle] = std::move(made);
  return handle;
}

bool FakeDriver::is_alive(CUevent_st* event) {
  const std::lock_guard lock(mutex_);
  return events_.contains(event);
}

bool FakeDriver::destroy(CUevent_st* event) {
  const std::lock_guard lock(mutex_);
  return events_.erase(event) > 0;
}

void* FakeDriver::allocate(Kind kind, std::size_t bytes, int device) {
  std::byte* const storage = make_storage(bytes);
  std::byte* const address = kind == Kind::device ? reserve_addresses(bytes) : storage;
  const std::size_t tracked = kind == Kind::device ? bytes : 0;
  const std::lock_guard lock(mutex_);
  allocations_[address] = {new Allocation{kind, device, bytes, address, storage, std::vector<char>(tracked)},
                           free_allocation};
  return address;
}

bool FakeDriver::add_registered(void* memory, std::size_t bytes, int device) {
  auto* const host = static_cast<std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  const auto after = registered_.lower_bound(host + bytes);
  if (after != registered_.begin()) {
    const auto& [begin, before] = *std::prev(after);
    if (begin + before->bytes > host) return false;
  }
  std::byte* const address = reserve_addresses(bytes);
  allocations_[address] =
      registered_[host] = {new Allocation{Kind::registered, device, bytes, address, host}, free_allocation};
  return true;
}

std::size_t FakeDriver::allocated_bytes(int device) {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [address, allocation] : allocations_) {
    if (allocation->kind == Kind::device && allocation->device == device) bytes += allocation->bytes;
  }
  return bytes;
}

bool FakeDriver::free(void* memory) {
  auto* const address = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(mutex_);
  const auto registered = registered_.find(address);
  if (registered == registered_.end()) return allocations_.erase(address) > 0;
  allocations_.erase(registered->second->address);
  registered_.erase(registered);
  return true;
}

std::shared_ptr<Allocation> FakeDriver::find(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return find_in(allocations_, memory, bytes);
}

std::shared_ptr<Allocation> FakeDriver::find_on_host(const void* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  auto found = find_in(registered_, memory, bytes);
  return found == nullptr ? find_in(allocations_, memory, bytes) : found;
}

void FakeDriver::set_delays(std::uint64_t seed, std::chrono::microseconds longest) {
  const std::lock_guard lock(mutex_);
  seed_ = seed;
  longest_delay_ = longest;
}

void FakeDriver::wait_to_free(int device) {
  std::unique_lock held(hazards.waiting(), std::defer_lock);
  if (hazards.has(Hazard::locking_free)) held.lock();
  std::vector<std::shared_ptr<CUstream_st>> streams{devices.default_stream(device)};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, stream] : streams_) {
      if (stream->device() == device) streams.push_back(stream);
    }
  }
  for (const auto& each : streams) each->synchronize();
}

std::size_t FakeDriver::live_objects() {
  const std::size_t loaded = modules.loaded_images().size();
  const std::lock_guard lock(mutex_);
  return loaded + streams_.size() + events_.size() + allocations_.size();
}

}  // namespace qccl::device::fake
