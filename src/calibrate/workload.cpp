#include "calibrate/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "calibrate/program_kernels.hpp"
#include "calibrate/replay_memory.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr std::size_t kInputSets = 3;
/// Random data are made on the host for that many bytes of a buffer at most; larger ones repeat them.
constexpr std::int64_t kRandomBytes = std::int64_t{1} << 20;
constexpr std::int64_t kLongestChain = std::int64_t{8} << 20;
/// The buffers of one workload take at most this share of the free memory.
constexpr std::int64_t kMemoryShare = 3;

// ---- kernels of the table ----------------------------------------------------------------------------------------------

std::int64_t bytes_of(const Buffer& buffer, const Sizes& sizes) {
  return std::max<std::int64_t>(buffer.count(sizes) * size_of(buffer.type), 16);
}

std::int64_t bytes_of(const Kernel& kernel, const Sizes& sizes) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : kernel.buffers) bytes += bytes_of(buffer, sizes);
  return bytes;
}

class TableWorkload : public Workload {
 public:
  TableWorkload(const Kernel& kernel, Sizes sizes, const DeviceShape& device, Sample sample, double weight)
      : kernel_(kernel), sizes_(std::move(sizes)) {
    sample_ = std::move(sample);
    weight_ = weight;
    const Work work = kernel.work(sizes_, device);
    sample_.kernel = kernel.name;
    if (sample_.flops == 0) sample_.flops = work.flops;
    if (sample_.bytes == 0) sample_.bytes = std::llround(work.bytes());
  }

  void prepare(Backend& backend) override {
    const std::int64_t room = backend.memory().free / kMemoryShare, each = bytes_of(kernel_, sizes_);
    const auto sets = static_cast<std::size_t>(std::clamp<std::int64_t>(room / std::max<std::int64_t>(each, 1), 1, kInputSets));
    for (std::size_t set = 0; set < sets; ++set) {
      const HostBuffers data = make_buffers(kernel_, sizes_, backend.shape(), 1000 + set, 0, kRandomBytes);
      std::vector<void*> buffers;
      for (std::size_t i = 0; i < kernel_.buffers.size(); ++i) {
        const std::int64_t bytes = bytes_of(kernel_.buffers[i], sizes_);
        buffers.push_back(backend.allocate(static_cast<std::size_t>(bytes)));
        allocated_.push_back(buffers.back());
        randomise(backend, buffers.back(), bytes, data[i]);
      }
      sets_.push_back(std::move(buffers));
    }
  }
  void run(Backend& backend, std::size_t set) override { backend.launch(kernel_, sizes_, set_of(set), kComputeStream); }
  void finish(Backend& backend) override {
    backend.synchronize();
    for (void* memory : allocated_) backend.release(memory);
    allocated_.clear();
    sets_.clear();
  }

 protected:
  const std::vector<void*>& set_of(std::size_t set) const { return sets_[set % sets_.size()]; }

 private:
  const Kernel& kernel_;
  Sizes sizes_;
  std::vector<std::vector<void*>> sets_;
  std::vector<void*> allocated_;
};

/// A product through one of the vendor's libraries, on operands of the table's own kernel for that type.
class LibraryWorkload : public TableWorkload {
 public:
  LibraryWorkload(const Kernel& kernel, const GemmCall& call, const DeviceShape& device, Sample sample, double weight, std::size_t library,
                  const std::string& name)
      : TableWorkload(kernel, {call.m, call.n, call.k}, device, std::move(sample), weight), call_(call), library_(library) {
    sample_.kernel = name;
  }
  void run(Backend& backend, std::size_t set) override {
    const std::vector<void*>& buffers = set_of(set);
    call_.a = buffers[0], call_.b = buffers[1], call_.d = buffers[2];
    backend.library_gemm(call_, library_, kComputeStream);
  }

 private:
  GemmCall call_;
  std::size_t library_;
};

// ---- kernels of a program ----------------------------------------------------------------------------------------------

class ProgramWorkload : public Workload {
 public:
  ProgramWorkload(const plimsoll::Kernel& kernel, Sample sample, double weight) : kernel_(kernel) {
    sample_ = std::move(sample);
    weight_ = weight;
  }
  void prepare(Backend& backend) override {
    const Operands operands = operands_of(kernel_, backend);
    for (std::size_t set = 0; set < kInputSets; ++set) {
      if (set > 0 && (operands.read + operands.written) * static_cast<std::int64_t>(set + 1) > backend.memory().free / kMemoryShare) break;
      const std::vector<std::byte> data = operand_numbers(backend.shape(), 2000 + set);
      sets_.push_back({place(backend, operands.read, data), place(backend, operands.written, data)});
    }
  }
  void run(Backend& backend, std::size_t set) override {
    const Pair& pair = sets_[set % sets_.size()];
    run_program_kernel(backend, kernel_, pair.from, pair.to, kComputeStream);
  }
  void finish(Backend& backend) override {
    backend.synchronize();
    for (const Pair& pair : sets_) backend.release(pair.from), backend.release(pair.to);
    sets_.clear();
  }

 private:
  struct Pair {
    void *from, *to;
  };
  static void* place(Backend& backend, std::int64_t bytes, const std::vector<std::byte>& data) {
    void* memory = backend.allocate(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 64)));
    randomise(backend, memory, bytes, data);
    return memory;
  }

  plimsoll::Kernel kernel_;
  std::vector<Pair> sets_;
};

// ---- launches and copies -----------------------------------------------------------------------------------------------

class LaunchWorkload : public Workload {
 public:
  explicit LaunchWorkload(bool round_trip) : round_trip_(round_trip) {
    sample_.kind = round_trip ? SampleKind::round_trip : SampleKind::launch;
    sample_.kernel = "empty";
  }
  double parts() const override { return round_trip_ ? 1 : kChain; }
  void prepare(Backend&) override {}
  void run(Backend& backend, std::size_t) override {
    const Kernel& empty = kernel_named("empty");
    for (int i = 0; i < (round_trip_ ? 1 : kChain); ++i) backend.launch(empty, {}, {}, kComputeStream);
    if (round_trip_) backend.synchronize();
  }
  void finish(Backend&) override {}

 private:
  static constexpr int kChain = 200;
  bool round_trip_;
};

/// Allocations through the caching allocator as a step makes them: a tensor is made, and the oldest of some that are alive dies.
class AllocationWorkload : public Workload {
 public:
  AllocationWorkload() {
    sample_.kind = SampleKind::allocation;
    sample_.kernel = "caching allocator";
  }
  double parts() const override { return kPairs; }
  void prepare(Backend& backend) override {
    memory_ = std::make_unique<ReplayMemory>(backend, PlayMemoryOptions{});
    for (TensorId id = 0; id < kAlive; ++id) make(id);
  }
  void run(Backend&, std::size_t) override {
    for (int pair = 0; pair < kPairs; ++pair) {
      const TensorId oldest = next_++ % kAlive;
      memory_->free({InstructionKind::free, kComputeStream, Category::temporary, oldest});
      make(oldest);
    }
  }
  void finish(Backend&) override { memory_.reset(); }

 private:
  static constexpr TensorId kAlive = 64;
  static constexpr int kPairs = 256;
  void make(TensorId id) {
    constexpr std::int64_t kSizes[] = {4096, 262144, 512, 65536, 1572864, 16384, 720896, 1024};
    memory_->allocate({InstructionKind::alloc, kComputeStream, Category::temporary, id, kSizes[(id * 5 + 3) % std::size(kSizes)]});
  }

  std::unique_ptr<ReplayMemory> memory_;
  TensorId next_ = 0;
};

class CopyWorkload : public Workload {
 public:
  CopyWorkload(bool to_device, std::int64_t bytes) : to_device_(to_device) {
    sample_.kind = to_device ? SampleKind::host_to_device : SampleKind::device_to_host;
    sample_.kernel = "memcpy";
    sample_.bytes = bytes;
  }
  void prepare(Backend& backend) override {
    device_ = backend.allocate(static_cast<std::size_t>(sample_.bytes));
    host_ = backend.allocate_host(static_cast<std::size_t>(sample_.bytes));
    std::memset(host_, 0x5a, static_cast<std::size_t>(sample_.bytes));
  }
  void run(Backend& backend, std::size_t) override {
    const auto bytes = static_cast<std::size_t>(sample_.bytes);
    if (to_device_)
      backend.copy(device_, host_, bytes, CopyDirection::host_to_device, kComputeStream);
    else
      backend.copy(host_, device_, bytes, CopyDirection::device_to_host, kComputeStream);
  }
  void finish(Backend& backend) override {
    backend.synchronize();
    backend.release(device_);
    backend.release_host(host_);
  }

 private:
  bool to_device_;
  void *device_ = nullptr, *host_ = nullptr;
};

// ---- what a machine is measured by ---------------------------------------------------------------------------------------

class MachineList {
 public:
  MachineList(Backend& backend, std::int64_t largest) : backend_(backend), device_(backend.shape()), cpu_(device_.target == Target::cpu) {
    const std::int64_t room = backend.memory().free / (kMemoryShare * 3);
    largest_ = std::min({largest, room, cpu_ ? std::int64_t{128} << 20 : std::int64_t{1} << 30});
  }

  Workloads make() {
    list_.push_back(std::make_unique<LaunchWorkload>(false));
    list_.push_back(std::make_unique<LaunchWorkload>(true));
    if (cpu_) list_.push_back(std::make_unique<AllocationWorkload>());  // elsewhere the host runs ahead
    for (int third = 0; third < 3; ++third) {
      streams(third);
      products(third);
      if (third == 0) rates(), copies();
    }
    attention();
    caches();
    return std::move(list_);
  }

 private:
  void add(std::string_view name, const Sizes& sizes, Sample sample, double weight = 1) {
    const Kernel& kernel = kernel_named(name);
    std::int64_t most = 0;
    for (const Buffer& buffer : kernel.buffers) most = std::max(most, bytes_of(buffer, sizes));
    if (!kernel.runs_on(device_.target) || !kernel.cannot(sizes).empty() || most > largest_) return;
    if (sample.type.empty()) sample.type = name_of(kernel.type);
    list_.push_back(table_workload(kernel, sizes, device_, std::move(sample), weight));
  }

  static Sample stream_of(const std::string& group) {
    Sample sample;
    sample.kind = SampleKind::stream;
    sample.group = group;
    return sample;
  }

  /// A memory-bound kernel of a program on the CPU, where the table's kernels are bound by arithmetic.
  void program_stream(plimsoll::KernelKind kind, std::int64_t read, std::int64_t written) {
    const plimsoll::Kernel kernel{Unspecified{kind, DType::fp32, 0, read, written}};
    if (std::max(read, written) > largest_) return;
    Sample sample = stream_of(std::string(plimsoll::name_of(kind)));
    sample.kernel = fmt::format("{} reads, {} writes", read, written);
    sample.type = "fp32";
    sample.bytes = read + written;
    list_.push_back(std::make_unique<ProgramWorkload>(kernel, sample, 1));
  }

  /// Sizes from small to large, the three thirds apart, so that an interrupted measurement has some of each.
  void streams(int third) {
    using Kind = plimsoll::KernelKind;
    int step = 0;
    for (std::int64_t bytes = 16384; bytes <= largest_; bytes *= 4, ++step) {
      if (step % 3 != third) continue;
      if (cpu_) {
        program_stream(Kind::elementwise, bytes, bytes);
        program_stream(Kind::elementwise, 2 * bytes, bytes);
        program_stream(Kind::reduction, bytes, bytes / 16);
        program_stream(Kind::reduction, bytes, bytes);
        program_stream(Kind::gather, bytes, bytes);
        program_stream(Kind::convolution, bytes, bytes);
        program_stream(Kind::multi_tensor, 4 * bytes, 3 * bytes);
        continue;
      }
      add("copy", {bytes / 4}, stream_of("elementwise"));
      add("triad", {bytes / 4}, stream_of("elementwise"));
      add("add_bf16", {bytes / 2}, stream_of("elementwise"));
      add("swiglu_bf16", {bytes / 2}, stream_of("elementwise"));
      add("cast_fp32_bf16", {bytes / 4}, stream_of("elementwise"));
      add("rmsnorm_bf16", {std::max<std::int64_t>(bytes / 8192, 1), 4096}, stream_of("reduction"));
      add("softmax_fp32", {std::max<std::int64_t>(bytes / 16384, 1), 4096}, stream_of("reduction"));
      add("adam_fp32", {bytes / 4}, stream_of("multi_tensor"));
      program_stream(Kind::gather, bytes, bytes);
    }
  }

  void rates() {
    Sample sample;
    sample.kind = SampleKind::matrix_rate;
    const std::int64_t blocks = largest_ < (1 << 20) ? 1 : 8LL * device_.compute_units;
    const std::int64_t iterations = largest_ < (1 << 20) ? 8 : 1000;
    for (const Kernel& kernel : kernel_table()) {
      const bool vector = cpu_ && kernel.kind == KernelKind::vector_rate;
      if (kernel.kind == KernelKind::matrix_rate || vector) add(kernel.name, {blocks, iterations}, sample, 2);
    }
  }

  void copies() {
    for (std::int64_t bytes = 65536; bytes <= std::min<std::int64_t>(largest_, 256 << 20); bytes *= 16) {
      list_.push_back(std::make_unique<CopyWorkload>(true, bytes));
      list_.push_back(std::make_unique<CopyWorkload>(false, bytes));
    }
  }

  /// Squares, and the flat and deep shapes of a transformer.
  void products(int third) {
    const std::vector<std::int64_t> scales =
        cpu_ ? std::vector<std::int64_t>{64, 128, 256, 512, 1024} : std::vector<std::int64_t>{128, 512, 1024, 2048, 4096, 8192};
    for (std::size_t i = static_cast<std::size_t>(third); i < scales.size(); i += 3) {
      const std::int64_t n = scales[i];
      for (const auto& [m, columns, k] : {std::array{n, n, n}, {4 * n, n, n}, {n, 4 * n, n}, {n, n, 4 * n}, {3 * n / 2, n, n / 2}}) {
        own_products(m, columns, k);
        for (const LibraryType& type : kLibraryTypes)
          for (const char* layout : {"TN", "NN", "NT"}) library_product(type, layout, m, columns, k);
      }
    }
    if (third == 2) odd_products();
  }

  /// Of squares alone where a library multiplies what frameworks run.
  void own_products(std::int64_t m, std::int64_t n, std::int64_t k) {
    if (!backend_.gemm_libraries().empty() && (m != n || n != k)) return;
    for (const Kernel& kernel : kernel_table()) {
      if (kernel.kind != KernelKind::gemm || !kernel.runs_on(device_.target)) continue;
      if (cpu_ && kernel.type == DType::bf16 && k > 256) continue;  // emulated there: slow, and slow alike
      Sample sample = product_sample(m, n, k);
      sample.type = multiplies_as_tf32(kernel) ? "tf32" : std::string(name_of(kernel.type));
      add(kernel.name, {m, n, k}, sample, weight_of(n));
    }
  }

  /// The three products of a vocabulary whose rows no 16-byte load fits, and those of adapters of low rank.
  void odd_products() {
    constexpr std::int64_t kTokens = 4096;
    for (const LibraryType& type : kLibraryTypes) {
      if (type.type == DType::fp8 || type.type == DType::fp64) continue;
      for (std::int64_t vocabulary : {50257, 50258})
        for (std::int64_t width : {768, 2048}) {
          library_product(type, "TN", vocabulary, kTokens, width);
          library_product(type, "NN", width, kTokens, vocabulary);
          library_product(type, "NT", width, vocabulary, kTokens);
        }
      for (std::int64_t rank : {16, 64}) {
        library_product(type, "TN", 4096, 2 * kTokens, rank);
        library_product(type, "TN", rank, 2 * kTokens, 4096);
        library_product(type, "NT", 4096, rank, 2 * kTokens);
      }
    }
  }

  struct LibraryType {
    DType type;
    Arithmetic arithmetic;
    std::string_view name;
  };
  static constexpr LibraryType kLibraryTypes[] = {{DType::bf16, Arithmetic::native, "bf16"}, {DType::fp16, Arithmetic::native, "fp16"},
                                                  {DType::fp8, Arithmetic::native, "fp8"},   {DType::fp32, Arithmetic::tf32, "tf32"},
                                                  {DType::fp32, Arithmetic::native, "fp32"}, {DType::fp64, Arithmetic::native, "fp64"}};

  /// As a framework calls it: y = x·Wᵀ ("TN"), the gradient of x ("NN"), of W ("NT"). Forward by every library that takes it, backward by
  /// the first; what takes 16 or more bits an element longest, backward as squares alone.
  void library_product(const LibraryType& type, std::string_view layout, std::int64_t m, std::int64_t n, std::int64_t k) {
    const Kernel* kernel = find_kernel(KernelKind::gemm, type.type, device_.target);
    const std::int64_t element = size_of(type.type);
    if (!kernel || std::max({m * k, n * k, m * n}) * element > largest_) return;
    const bool forward = layout == "TN", square = m == n && n == k, odd = m % 8 != 0 || n % 8 != 0 || k % 8 != 0;
    if (!forward && element > 2 && !square && !odd) return;
    GemmCall call{type.type, m, n, k};
    call.transpose_a = layout[0] == 'T', call.transpose_b = layout[1] == 'T';
    call.arithmetic = type.arithmetic;
    Sample sample = product_sample(m, n, k);
    sample.type = type.name;
    sample.layout = layout;
    const std::vector<std::string> libraries = backend_.gemm_libraries();
    for (std::size_t i = 0; i < libraries.size(); ++i) {
      if (!backend_.library_takes(call, i)) continue;
      list_.push_back(std::make_unique<LibraryWorkload>(*kernel, call, device_, sample, weight_of(n), i, libraries[i]));
      if (!forward) break;
    }
  }

  static Sample product_sample(std::int64_t m, std::int64_t n, std::int64_t k) {
    Sample sample;
    sample.kind = SampleKind::gemm;
    sample.m = m, sample.n = n, sample.k = k;
    return sample;
  }
  static double weight_of(std::int64_t n) { return n >= 4096 ? 3 : 1; }

  void attention() {
    own_attention();
    if (!backend_.attention_library().empty()) library_attention();
  }

  void own_attention() {
    for (std::int64_t sequence : {128, 1024, 4096})
      for (const auto& [name, width] :
           {std::pair<std::string_view, std::int64_t>{"attention_bf16_d64", 64}, {"attention_bf16_d128", 128}}) {
        if (cpu_ && sequence > 128) continue;
        const std::int64_t heads = cpu_ || largest_ < (1 << 20) ? 1 : 16;
        Sample sample;
        sample.kind = SampleKind::attention;
        sample.m = sample.n = sequence, sample.k = width, sample.batch = heads;
        sample.causal = true;
        add(kernel_for(name, device_.target).name, {heads, heads, sequence, 1}, sample);
        Attention backward = causal_attention(AttentionLibrary::flash2, sequence, width);
        backward.part = Attention::Part::backward;
        backward.heads = backward.kv_heads = heads;
        add_pass(backward);
      }
  }

  /// Short sequences and long, of as many tokens as fill a device, or of those that fit, by the vendor's library.
  void library_attention() {
    constexpr std::int64_t kTokens = 16384, kHeads = 16, kGroup = 4, kTensors = 6;
    for (std::int64_t sequence : {512, 2048, 8192})
      for (std::int64_t width : {64, 128, 256})
        for (const bool causal : {true, false})
          for (const std::int64_t group : {std::int64_t{1}, kGroup}) {
            Attention attention = causal_attention(AttentionLibrary::cudnn, sequence, width);
            attention.causal = causal;
            attention.batch = std::min(kTokens, largest_ / (kTensors * kHeads * width * size_of(attention.type))) / sequence;
            attention.heads = kHeads;
            attention.kv_heads = kHeads / group;
            if (attention.batch == 0 || (group > 1 && !causal)) continue;  // decoders alone share key heads
            for (const auto part : {Attention::Part::forward, Attention::Part::backward}) {
              attention.part = part;
              if (backend_.library_cannot(attention, HeadOrder::tokens_first).empty()) add_pass(attention);
            }
          }
  }

  static Attention causal_attention(AttentionLibrary library, std::int64_t sequence, std::int64_t width) {
    Attention attention;
    attention.library = library;
    attention.causal = true;
    attention.queries = attention.keys = sequence;
    attention.head_dim = attention.value_dim = width;
    return attention;
  }

  /// A whole pass, as a program runs it.
  void add_pass(const Attention& attention) {
    const plimsoll::Kernel kernel{attention};
    if (const Operands operands = operands_of(kernel, backend_); std::max(operands.read, operands.written) > largest_) return;
    list_.push_back(std::make_unique<ProgramWorkload>(kernel, attention_sample(attention, backend_), 1));
  }

  void caches() {
    for (std::int64_t bytes = 16384; bytes <= largest_; bytes *= 4) {
      Sample read;
      read.kind = SampleKind::cache_read;
      read.bytes = bytes;
      const std::int64_t blocks = largest_ < (1 << 20) ? 1 : 4LL * device_.compute_units;
      add("cache_read", {bytes / 4, largest_ < (1 << 20) ? 4 : 64, blocks}, read);
      Sample chase;
      chase.kind = SampleKind::pointer_chase;
      chase.bytes = bytes;
      if (bytes <= kLongestChain) add("pointer_chase", {bytes / 4, kChaseSteps}, chase);
    }
  }

  static constexpr std::int64_t kChaseSteps = 1000;
  Backend& backend_;
  DeviceShape device_;
  bool cpu_;
  std::int64_t largest_;
  Workloads list_;
};

}  // namespace

std::unique_ptr<Workload> table_workload(const Kernel& kernel, const Sizes& sizes, const DeviceShape& device, Sample sample,
                                         double weight) {
  return std::make_unique<TableWorkload>(kernel, sizes, device, std::move(sample), weight);
}

Sample attention_sample(const Attention& attention, Backend& backend) {
  const plimsoll::Kernel kernel{attention};
  Sample sample;
  sample.kind = attention.part == Attention::Part::backward ? SampleKind::attention_backward : SampleKind::attention;
  sample.kernel =
      why_own_attention(attention, backend).empty() ? backend.attention_library() : std::string(plimsoll::name_of(kernel.kind()));
  sample.type = name_of(attention.type);
  sample.m = attention.queries, sample.n = attention.keys, sample.k = attention.head_dim;
  sample.batch = attention.batch * attention.heads;
  sample.kv_batch = attention.batch * attention.kv_heads;
  sample.causal = attention.causal;
  sample.flops = kernel.flops();
  return sample;
}

bool multiplies_as_tf32(const Kernel& kernel) { return kernel.name.rfind("gemm_tf32", 0) == 0; }

Workloads machine_workloads(Backend& backend, std::int64_t largest) { return MachineList(backend, largest).make(); }

}  // namespace plimsoll::calibrate
