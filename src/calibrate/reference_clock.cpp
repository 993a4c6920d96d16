#include "calibrate/reference_clock.hpp"

#include <algorithm>

#include "calibrate/program_kernels.hpp"
#include "calibrate/replay_memory.hpp"
#include "calibrate/statistics.hpp"

namespace plimsoll::calibrate {
namespace {

constexpr int kRuns = 5;
constexpr std::int64_t kMemoryShare = 8;  // of the free memory for each buffer, at most
constexpr double kStreamUnit = 1 << 30;   // bytes that the stream's time is stated for, however many it moves

plimsoll::Kernel product_for(const DeviceShape& device) {
  Product product;
  const bool cpu = device.target == Target::cpu;
  product.a = product.b = product.result = cpu ? DType::fp32 : DType::bf16;
  product.m = product.n = product.k = cpu ? 256 : 4096;
  return {product};
}

plimsoll::Kernel stream_for(const Backend& backend) {
  Unspecified kernel;
  kernel.bytes_read = kernel.bytes_written = std::min(cache_of(backend.facts()), backend.memory().free / kMemoryShare) / 4096 * 4096;
  return {kernel};
}

}  // namespace

ReferenceClock::ReferenceClock(Backend& backend)
    : backend_(backend), product_(product_for(backend.shape())), stream_(stream_for(backend)) {
  const Operands operands = operands_of(product_, backend);
  const std::int64_t bytes = std::max({operands.read, operands.written, stream_.bytes_read()});
  for (void** memory : {&from_, &to_}) {
    *memory = backend.allocate(static_cast<std::size_t>(bytes));
    randomise(backend, *memory, bytes, operand_numbers(backend.shape(), 3));
  }
}

ReferenceClock::~ReferenceClock() {
  give_back([&] {
    backend_.synchronize();
    backend_.release(from_);
    backend_.release(to_);
  });
}

double ReferenceClock::median_of(const plimsoll::Kernel& kernel, void* from, void* to) {
  std::vector<double> times;
  run_program_kernel(backend_, kernel, from, to, kComputeStream);
  for (int run = 0; run < kRuns; ++run) {
    backend_.forget_marks();
    const std::size_t first = backend_.mark(kComputeStream);
    run_program_kernel(backend_, kernel, from, to, kComputeStream);
    const std::size_t last = backend_.mark(kComputeStream);
    times.push_back(backend_.between(first, last));
  }
  return calibrate::median(times);
}

ReferenceTimes ReferenceClock::measure() {
  ReferenceTimes times;
  times.stream = median_of(stream_, from_, to_) * kStreamUnit / static_cast<double>(stream_.bytes_read() + stream_.bytes_written());
  times.product = median_of(product_, from_, to_);
  return times;
}

Sample reference_sample(const char* kernel, double seconds) {
  Sample sample;
  sample.kind = SampleKind::reference;
  sample.kernel = kernel;
  sample.seconds = sample.fastest = seconds;
  sample.runs = kRuns;
  sample.tool = "plimsoll";
  return sample;
}

std::optional<ReferenceTimes> reference_of(const Accelerator& device) {
  ReferenceTimes times;
  for (const Measurement& measurement : device.measurements) {
    if (measurement.what != "reference") continue;
    for (const auto& [key, value] : measurement.values) {
      if (key == kReferenceProduct) times.product = parse_seconds(value).value;
      if (key == kReferenceStream) times.stream = parse_seconds(value).value;
    }
  }
  return times.product > 0 && times.stream > 0 ? std::optional(times) : std::nullopt;
}

ReferenceTimes median(const std::vector<ReferenceTimes>& readings) {
  std::vector<double> products, streams;
  for (const ReferenceTimes& reading : readings) products.push_back(reading.product), streams.push_back(reading.stream);
  return {median(products), median(streams)};
}

}  // namespace plimsoll::calibrate
