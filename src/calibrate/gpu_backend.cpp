#include "calibrate/gpu_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {

std::string advice_on(int code) {
  switch (code) {
    case 2:
      return "the device's memory is taken: see who uses it (rocm-smi --showpids, nvidia-smi), or measure less";
    case 3:
    case 100:
    case 101:
      return "plimsoll doctor lists the devices; --backend cpu measures the processor";
    case 35:
    case 803:
      return "the driver is older than the library: update it";
    case 46:
      return "another process has the device for itself";
    case 209:
      return "the device code does not match the device: build plimsoll with its target";
    case 218:
    case 222:
      return "the driver does not translate this PTX: one of CUDA 12.4 or later does";
    case 221:
      return "the driver's compiler of PTX is missing: install libnvidia-ptxjitcompiler of the same version";
    case 214:
      return "the device reports a memory error that it cannot correct: reset or replace it";
    case 304:
    case 800:
      return "no permission: is the user in the groups render and video?";
    default:
      return "plimsoll doctor looks at the device; what calibrate measured until now is kept in its samples";
  }
}

namespace {

class GpuBackend : public Backend {
 public:
  GpuBackend(std::unique_ptr<GpuDriver> driver, int device, OpenLibraries* open_libraries) : driver_(std::move(driver)), device_(device) {
    open_device();
    libraries_ = open_libraries(*driver_, shape_.target);
  }
  ~GpuBackend() override {
    for (void* event : events_) driver_->destroy_event(event);
  }

  DeviceFacts facts() const override {
    DeviceFacts facts;
    facts.backend = driver_->backend();
    facts.name = name_;
    facts.target = architecture_.substr(0, architecture_.find(':'));
    facts.library = driver_->library();
    for (const auto& library : libraries_.products) facts.library += ", " + library->name();
    if (libraries_.attention) facts.library += ", " + libraries_.attention->name() + " " + libraries_.attention->version();
    facts.compute_units = shape_.compute_units;
    facts.devices = devices_;
    facts.memory_bytes = total_;
    facts.clock_hertz = clock_kilohertz_ * 1e3;
    return facts;
  }
  DeviceShape shape() const override { return shape_; }
  std::string pci_address() const override { return driver_->pci_address(device_); }
  MemoryInfo memory() const override {
    std::size_t free = 0, total = 0;
    check(*driver_, driver_->memory(free, total), "MemGetInfo");
    return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
  }

  void* allocate(std::size_t bytes) override {
    void* memory = nullptr;
    check(*driver_, driver_->allocate(&memory, bytes), "Malloc");
    return memory;
  }
  void release(void* memory) override { check(*driver_, driver_->release(memory), "Free"); }
  void* reserve(std::size_t bytes) override {
    if (!driver_->has_mapping()) refuse(driver_->library() + " maps no memory page by page", "expandable segments");
    void* range = nullptr;
    check(*driver_, driver_->reserve(&range, bytes), "MemAddressReserve");
    ranges_[static_cast<std::byte*>(range)] = {bytes, {}};
    return range;
  }
  void release_range(void* range) override {
    const auto found = ranges_.find(static_cast<std::byte*>(range));
    for (const auto& [at, page] : found->second.pages) check(*driver_, driver_->unmap(at, page.bytes, page.handle), "MemUnmap");
    check(*driver_, driver_->release_range(range, found->second.bytes), "MemAddressFree");
    ranges_.erase(found);
  }
  void map(void* at, std::size_t bytes, std::size_t page) override {
    auto* first = static_cast<std::byte*>(at);
    for (std::size_t done = 0; done < bytes; done += page) {
      void* handle = nullptr;
      check(*driver_, driver_->map(first + done, page, device_, &handle), "MemMap");
      range_of(first).pages[first + done] = {page, handle};
    }
  }
  void unmap(void* at, std::size_t bytes) override {
    auto* first = static_cast<std::byte*>(at);
    auto& pages = range_of(first).pages;
    for (auto page = pages.lower_bound(first); page != pages.end() && page->first < first + bytes; page = pages.erase(page))
      check(*driver_, driver_->unmap(page->first, page->second.bytes, page->second.handle), "MemUnmap");
  }
  void* allocate_host(std::size_t bytes) override {
    void* memory = nullptr;
    check(*driver_, driver_->allocate_host(&memory, bytes), "HostMalloc");
    return memory;
  }
  void release_host(void* memory) override { check(*driver_, driver_->release_host(memory), "HostFree"); }

  void copy(void* to, const void* from, std::size_t bytes, CopyDirection direction, StreamId stream) override {
    if (bytes > 0) check(*driver_, driver_->copy(to, from, bytes, direction, stream_of(stream)), "MemcpyAsync");
  }
  void fill(void* to, int byte, std::size_t bytes, StreamId stream) override {
    if (bytes > 0) check(*driver_, driver_->fill(to, byte, bytes, stream_of(stream)), "MemsetAsync");
  }
  void launch(const Kernel& kernel, const Sizes& sizes, const std::vector<void*>& buffers, StreamId stream) override {
    PackedArguments arguments(kernel, sizes, buffers);
    check(*driver_, driver_->launch(function_of(kernel), kernel.launch(sizes, shape_), stream_of(stream), arguments.pointers()),
          std::string(kernel.name).c_str());
  }
  void wait(StreamId stream, StreamId other) override {
    void* event = new_event();
    check(*driver_, driver_->record(event, stream_of(other)), "EventRecord");
    check(*driver_, driver_->wait_event(stream_of(stream), event), "StreamWaitEvent");
  }
  void synchronize() override { check(*driver_, driver_->synchronize(), "DeviceSynchronize"); }

  std::size_t mark(StreamId stream) override {
    check(*driver_, driver_->record(new_event(), stream_of(stream)), "EventRecord");
    return used_events_ - 1;
  }
  double between(std::size_t first, std::size_t last) override {
    float milliseconds = 0;
    check(*driver_, driver_->wait_for(events_.at(last)), "EventSynchronize");
    check(*driver_, driver_->elapsed(&milliseconds, events_.at(first), events_.at(last)), "EventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }
  void forget_marks() override { used_events_ = 0; }

  void* native_stream(StreamId stream) override { return stream_of(stream); }
  std::vector<std::string> gemm_libraries() const override {
    std::vector<std::string> names;
    for (const auto& library : libraries_.products) names.push_back(library->name());
    return names;
  }
  bool library_takes(const GemmCall& call, std::size_t library) override { return libraries_.products.at(library)->takes(call); }
  bool library_gemm(const GemmCall& call, std::size_t library, StreamId stream) override {
    return libraries_.products.at(library)->multiply(call, stream_of(stream));
  }

  std::string attention_library() const override { return libraries_.attention ? libraries_.attention->name() : std::string(); }
  std::string no_attention_library() const override { return libraries_.no_attention; }
  std::string library_cannot(const Attention& attention, HeadOrder order) override {
    return libraries_.attention ? libraries_.attention->why_not(attention, order) : libraries_.no_attention;
  }
  void library_attention(const AttentionCall& call, StreamId stream) override { libraries_.attention->run(call, stream_of(stream)); }

  Work stream_bytes(plimsoll::KernelKind kind, void* from, std::int64_t read, void* to, std::int64_t written, StreamId stream) override;

  GpuDriver& driver() { return *driver_; }

 private:
  void open_device() {
    check(*driver_, driver_->count(devices_), "GetDeviceCount");
    if (device_ >= devices_)
      fail(fmt::format("there is no device {}", device_), driver_->backend(), fmt::format("the devices are 0 to {}", devices_ - 1));
    check(*driver_, driver_->select(device_), "SetDevice");
    check(*driver_, driver_->name(device_, name_), "DeviceGetName");
    check(*driver_, driver_->architecture(device_, architecture_), "GetDeviceProperties");
    const CodeObject* object = driver_->code_object(architecture_);
    if (!object) fail(why_no_code_object(architecture_), name_, "build plimsoll with that target, or measure with --backend cpu");
    int units = 0;
    check(*driver_, driver_->compute_units(device_, units), "DeviceGetAttribute");
    check(*driver_, driver_->clock_kilohertz(device_, clock_kilohertz_), "DeviceGetAttribute");
    shape_ = {object->target, units};
    check(*driver_, driver_->load(&module_, *object), "ModuleLoadData");
    total_ = memory().total;
  }

  void* stream_of(StreamId id) {
    while (streams_.size() <= id) {
      streams_.push_back(nullptr);
      check(*driver_, driver_->create_stream(&streams_.back()), "StreamCreate");
    }
    return streams_[id];
  }
  void* function_of(const Kernel& kernel) {
    void*& function = functions_[kernel.name];
    if (!function) check(*driver_, driver_->function(&function, module_, std::string(kernel.name).c_str()), "ModuleGetFunction");
    return function;
  }
  void* new_event() {
    if (used_events_ == events_.size()) {
      events_.push_back(nullptr);
      check(*driver_, driver_->create_event(&events_.back()), "EventCreate");
    }
    return events_[used_events_++];
  }
  void launch_rows(std::string_view name, const Sizes& sizes, const std::vector<void*>& buffers, StreamId stream, Work& done);
  /// What only reads: sums are the only writes.
  void launch_sums(void* from, std::int64_t read, void* to, std::int64_t written, StreamId stream, Work& done) {
    launch_rows("piece_sums", {read / 16 * 4, written / 4}, {from, to}, stream, done);
  }

  /// Addresses, and the pages among them that have memory.
  struct Page {
    std::size_t bytes;
    void* handle;
  };
  struct Range {
    std::size_t bytes;
    std::map<std::byte*, Page> pages;
  };
  Range& range_of(std::byte* at) { return std::prev(ranges_.upper_bound(at))->second; }

  std::unique_ptr<GpuDriver> driver_;
  int device_, devices_ = 0, clock_kilohertz_ = 0;
  VendorLibraries libraries_;
  std::string name_, architecture_;
  DeviceShape shape_{};
  std::int64_t total_ = 0;
  void* module_ = nullptr;
  std::vector<void*> streams_;
  std::map<std::string_view, void*> functions_;
  std::vector<void*> events_;
  std::size_t used_events_ = 0;
  std::map<std::byte*, Range> ranges_;
};

std::byte* at(void* memory, std::int64_t bytes) { return static_cast<std::byte*>(memory) + bytes; }

/// A kernel of the table; counts what its row says.
void GpuBackend::launch_rows(std::string_view name, const Sizes& sizes, const std::vector<void*>& buffers, StreamId stream, Work& done) {
  const Kernel& kernel = kernel_named(name);
  launch(kernel, sizes, buffers, stream);
  const Work work = kernel.work(sizes, shape_);
  done.bytes_read += work.bytes_read;
  done.bytes_written += work.bytes_written;
}

/// Adam for the updates of an optimizer; sums for reductions; triad and copy for the rest, so that reads and writes add up in vectors of
/// 16 bytes. Bytes that are only written are set, those that are only read are summed up.
Work GpuBackend::stream_bytes(plimsoll::KernelKind kind, void* from, std::int64_t read, void* to, std::int64_t written, StreamId stream) {
  constexpr std::int64_t kVector = 16;
  Work done{0, 0, 0};
  constexpr std::int64_t kMuchLess = 8;
  if (kind == plimsoll::KernelKind::reduction && written >= 4 && read >= kMuchLess * written) {
    launch_sums(from, read, to, written, stream, done);
    return done;
  }
  std::int64_t reads = read / kVector, writes = written / kVector;
  if (kind == plimsoll::KernelKind::multi_tensor) {
    const std::int64_t vectors = std::min(reads / 4, writes / 3);
    if (vectors > 0) {
      const std::int64_t bytes = vectors * kVector;
      launch_rows("adam_fp32", {4 * vectors}, {from, to, at(to, bytes), at(to, 2 * bytes)}, stream, done);
      reads -= 4 * vectors, writes -= 3 * vectors;
    }
  }
  const std::int64_t triads = std::clamp<std::int64_t>(reads - writes, 0, writes), copies = std::min(reads, writes) - triads;
  if (triads > 0) launch_rows("triad", {4 * triads}, {from, at(from, triads * kVector), to}, stream, done);
  if (copies > 0) launch_rows("copy", {4 * copies}, {at(from, 2 * triads * kVector), at(to, triads * kVector)}, stream, done);
  const std::int64_t unread = reads - 2 * triads - copies, unwritten = writes - triads - copies;
  if (unwritten > 0) {
    fill(at(to, (triads + copies) * kVector), 0, static_cast<std::size_t>(unwritten * kVector), stream);
    done.bytes_written += static_cast<double>(unwritten * kVector);
  }
  if (unread > 0 && written >= 4) launch_sums(at(from, (2 * triads + copies) * kVector), unread * kVector, to, written, stream, done);
  return done;
}

}  // namespace

void check(const GpuDriver& driver, int code, const char* call) {
  if (code == 0) return;
  fail(fmt::format("{}: {} ({})", call, driver.error_name(code), code), driver.backend(), advice_on(code));
}

FoundBackend open_gpu(FoundDriver found, int device, OpenLibraries* libraries) {
  if (!found.driver) return {nullptr, found.why_not};
  int devices = 0;
  if (const int code = found.driver->count(devices); code != 0 || devices == 0)
    return {nullptr, fmt::format("{}: {} ({}), {} devices", found.driver->library(), found.driver->error_name(code), code, devices)};
  return {std::make_unique<GpuBackend>(std::move(found.driver), device, libraries), {}};
}

GpuDriver& driver_of(Backend& backend) {
  auto* gpu = dynamic_cast<GpuBackend*>(&backend);
  if (!gpu) throw Error(ErrorCode::internal, "the processor has no driver");
  return gpu->driver();
}

namespace {

std::vector<std::unique_ptr<GemmLibrary>> both(std::unique_ptr<GemmLibrary> first, std::unique_ptr<GemmLibrary> second) {
  std::vector<std::unique_ptr<GemmLibrary>> libraries;
  for (auto* library : {&first, &second})
    if (*library) libraries.push_back(std::move(*library));
  return libraries;
}
/// AMD's attention has no interface that a program can find when it runs: AOTriton's is C++, with names of its compiler's making and
/// launches of kernels that it ships apart, Composable Kernel's are templates that are compiled in.
VendorLibraries amd_libraries(GpuDriver& driver, Target target) {
  return {both(open_hipblaslt(driver, target), open_rocblas()), nullptr, "AMD's libraries of attention cannot be called from here"};
}
VendorLibraries nvidia_libraries(GpuDriver& driver, Target target) {
  VendorLibraries libraries{both(open_cublaslt(driver, target), open_cublas()), nullptr, {}};
  libraries.attention = open_cudnn(driver, libraries.no_attention);
  return libraries;
}

}  // namespace

FoundBackend open_hip(int device) { return open_gpu(find_hip_driver(), device, amd_libraries); }
FoundBackend open_cuda(int device) { return open_gpu(find_cuda_driver(), device, nvidia_libraries); }

}  // namespace plimsoll::calibrate
