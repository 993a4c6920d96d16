#include "calibrate/program_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "plimsoll/error.hpp"

namespace plimsoll::calibrate {
namespace {

using ProgramKind = plimsoll::KernelKind;

std::byte* at(void* memory, std::int64_t bytes) { return static_cast<std::byte*>(memory) + bytes; }

// ---- products --------------------------------------------------------------------------------------------------------

/// Where the operands of the products of a batch lie: on a GPU each begins where a framework's tensors may, with room for the multiple of
/// k that the table's kernels take.
struct GemmPlace {
  std::int64_t k, a, b, d;  ///< bytes of A, B and D

  GemmPlace(const Product& product, const DeviceShape& device) {
    constexpr std::int64_t kStep = 128, kAlignment = 512;
    const bool cpu = device.target == Target::cpu;
    const std::int64_t element = size_of(product.a), alignment = cpu ? 1 : kAlignment;
    k = cpu ? product.k : round_up(product.k, kStep);
    a = round_up(product.m * k * element, alignment);
    b = round_up(product.n * k * element, alignment);
    d = round_up(product.m * product.n * element, alignment);
  }
};

const Kernel& gemm_kernel(const Product& product, const DeviceShape& device) {
  const Kernel* found = find_kernel(KernelKind::gemm, product.a, device.target);
  if (!found) refuse(fmt::format("a product of {} has no kernel on {}", name_of(product.a), name_of(device.target)), "replay");
  return *found;
}

/// The first of the vendor's libraries that takes the product.
bool any_library(Backend& backend, const GemmCall& call, StreamId stream) {
  for (std::size_t i = 0; i < backend.gemm_libraries().size(); ++i)
    if (backend.library_gemm(call, i, stream)) return true;
  return false;
}

Work run_gemm(Backend& backend, const Product& product, void* from, void* to, StreamId stream) {
  const GemmPlace place(product, backend.shape());
  const std::int64_t element = size_of(product.a), all_a = product.batch * place.a;
  GemmCall call = gemm_call(product);
  call.a = from, call.b = at(from, all_a), call.d = to;
  call.stride_a = place.a / element, call.stride_b = place.b / element, call.stride_d = place.d / element;
  if (!any_library(backend, call, stream))
    for (std::int64_t i = 0; i < product.batch; ++i)
      backend.launch(gemm_kernel(product, backend.shape()), {product.m, product.n, place.k},
                     {at(from, i * place.a), at(from, all_a + i * place.b), at(to, i * place.d)}, stream);
  const double m = static_cast<double>(product.m), n = static_cast<double>(product.n), k = static_cast<double>(product.k);
  const double batch = static_cast<double>(product.batch), bytes = static_cast<double>(element);
  return {batch * (m + n) * k * bytes, batch * m * n * bytes, batch * 2 * m * n * k};
}

// ---- attention -------------------------------------------------------------------------------------------------------

/// How a program's attention runs on the table's kernels: sizes {heads, kv_heads, sequence, causal} and their head width.
struct TableAttention {
  Sizes sizes;
  std::int64_t width;

  std::string name(const char* part) const { return fmt::format("attention{}_bf16_d{}", part, width); }
  std::int64_t rows() const { return sizes[0] * sizes[2]; }
  std::int64_t tensor() const { return rows() * width * 2; }  ///< bytes of queries, keys, values, the output
};

/// Heads and sequences fill whole tiles, as the frameworks' kernels fill theirs: a head of 96 runs as one of 128. Numbers of 16 bits
/// take the same instructions in either format.
TableAttention attention_of(const plimsoll::Attention& kernel, const DeviceShape& device) {
  const auto refused = [&](const std::string& why) {
    refuse(fmt::format("attention of {} over {} x {} with heads of {}: {}", name_of(kernel.type), kernel.queries, kernel.keys,
                       kernel.head_dim, why),
           "replay", "with --attention eager its products and softmax run one by one");
  };
  constexpr std::int64_t kTile = 128;
  if (kernel.type != DType::bf16 && kernel.type != DType::fp16) refused("the kernels take 16 bits");
  if (kernel.queries != kernel.keys) refused("the kernels take equal lengths");
  if (kernel.head_dim > 128) refused("the kernels take heads of up to 128");
  const std::int64_t heads = kernel.batch * kernel.heads;
  const TableAttention attention{{heads, heads, round_up(kernel.queries, kTile), kernel.causal ? 1 : 0}, kernel.head_dim <= 64 ? 64 : 128};
  const Kernel& row = kernel_for(attention.name(""), device.target);
  if (!row.runs_on(device.target)) refused(fmt::format("there is no such kernel on {}", name_of(device.target)));
  return attention;
}

/// Launches rows of the table one after another and adds up what they do.
class Launcher {
 public:
  Launcher(Backend& backend, StreamId stream) : backend_(backend), stream_(stream) {}
  void operator()(const std::string& name, const Sizes& sizes, const std::vector<void*>& buffers) {
    const Kernel& kernel = kernel_for(name, backend_.shape().target);
    backend_.launch(kernel, sizes, buffers, stream_);
    const Work work = kernel.work(sizes, backend_.shape());
    done.bytes_read += work.bytes_read, done.bytes_written += work.bytes_written, done.flops += work.flops;
  }
  Work done{0, 0, 0};

 private:
  Backend& backend_;
  StreamId stream_;
};

Work attention_forward(Backend& backend, const TableAttention& attention, void* from, void* to, StreamId stream) {
  const std::int64_t one = attention.tensor();
  Launcher launch(backend, stream);
  launch(attention.name(""), attention.sizes, {from, at(from, one), at(from, 2 * one), to, at(to, one)});
  return launch.done;
}

/// As FlashAttention-2 goes about it: δ first, dQ added up in fp32 from zero, and brought to 16 bits at the end.
Work attention_backward(Backend& backend, const TableAttention& attention, void* from, void* to, StreamId stream) {
  const std::int64_t one = attention.tensor(), rows = attention.rows();
  const auto in = [&](std::int64_t tensor) { return at(from, tensor * one); };  // Q, K, V, O, dO, then the forward pass's sums
  void *dq = to, *dk = at(to, one), *dv = at(to, 2 * one), *sums = at(to, 3 * one), *delta = at(to, 5 * one);
  Launcher launch(backend, stream);
  launch(attention.name("_delta"), {rows}, {in(4), in(3), delta});
  backend.fill(sums, 0, static_cast<std::size_t>(2 * one), stream);
  launch.done.bytes_written += static_cast<double>(2 * one);
  launch(attention.name("_backward"), attention.sizes, {in(0), in(1), in(2), in(4), in(5), delta, sums, dk, dv});
  launch("cast_fp32_bf16", {rows * attention.width}, {sums, dq});
  return launch.done;
}

/// A whole pass as the vendor's library runs it: Q, K, V and, backward, the output, its gradient and the rows' sums at `from`, the results
/// at `to`.
class LibraryAttention {
 public:
  explicit LibraryAttention(const plimsoll::Attention& attention) : attention_(attention) {
    const std::int64_t element = size_of(attention.type), queries = attention.batch * attention.heads * attention.queries;
    const std::int64_t keys = attention.batch * attention.kv_heads * attention.keys;
    q_ = queries * attention.head_dim * element, output_ = queries * attention.value_dim * element;
    k_ = keys * attention.head_dim * element, v_ = keys * attention.value_dim * element;
    sums_ = queries * size_of(DType::fp32);
  }
  Operands operands() const {
    const std::int64_t inputs = q_ + k_ + v_;
    return is_backward() ? Operands{inputs + 2 * output_ + sums_, inputs} : Operands{inputs, output_ + sums_};
  }
  AttentionCall call(void* from, void* to) const {
    AttentionCall call;
    call.attention = attention_;
    call.q = from, call.k = at(from, q_), call.v = at(from, q_ + k_);
    if (is_backward()) {
      std::byte* behind = at(from, q_ + k_ + v_);
      call.output = behind, call.gradient = at(behind, output_), call.log_sum = at(behind, 2 * output_);
      call.dq = to, call.dk = at(to, q_), call.dv = at(to, q_ + k_);
    } else {
      call.output = to, call.log_sum = at(to, output_);
    }
    return call;
  }

 private:
  bool is_backward() const { return attention_.part == Attention::Part::backward; }
  const plimsoll::Attention& attention_;
  std::int64_t q_, k_, v_, output_, sums_;
};

// ---- long rows -------------------------------------------------------------------------------------------------------

/// A softmax over rows that no block's shared memory holds (those of a vocabulary) goes through them twice, as PyTorch's does; or nullptr.
const RowWise* long_softmax(const plimsoll::Kernel& kernel, const DeviceShape& device) {
  constexpr std::int64_t kShared = std::int64_t{160} << 10;
  using Function = RowWise::Function;
  const auto* rows = std::get_if<RowWise>(&kernel.work);
  if (!rows || device.target == Target::cpu || rows->operands.reads() == 0) return nullptr;
  const bool forward = rows->function == Function::softmax || rows->function == Function::log_softmax;
  const bool backward = rows->function == Function::softmax_backward || rows->function == Function::log_softmax_backward;
  return (forward || backward) && rows->columns * size_of(rows->operands[0].type) > kShared ? rows : nullptr;
}

/// The first pass reads, forward what maxima and sums are made of, backward a gradient; the second is the kernel's own traffic.
Work run_long_softmax(Backend& backend, const plimsoll::Kernel& kernel, const RowWise& rows, void* from, void* to, StreamId stream) {
  backend.stream_bytes(ProgramKind::reduction, from, rows.operands[0].bytes(), to, rows.rows * size_of(DType::fp32), stream);
  return backend.stream_bytes(kernel.kind(), from, kernel.bytes_read(), to, kernel.bytes_written(), stream);
}

/// A kernel of a GPU that only reads, as norms of many tensors do, has a sum to put somewhere.
std::int64_t result_bytes(const plimsoll::Kernel& kernel, const DeviceShape& device) {
  constexpr std::int64_t kLeast = 16;
  return device.target == Target::cpu ? kernel.bytes_written() : std::max(kernel.bytes_written(), kLeast);
}

/// The main kernel of a pass, which stands for the whole of it.
const Attention* main_attention(const plimsoll::Kernel& kernel) {
  const Attention* attention = kernel.attention();
  return attention && !runs_within_another(kernel) ? attention : nullptr;
}

}  // namespace

GemmCall gemm_call(const Product& product) {
  GemmCall call{product.a, product.m, product.n, product.k, product.batch};
  call.arithmetic = product.arithmetic;
  call.transpose_a = product.transpose_a, call.transpose_b = product.transpose_b;
  return call;
}

bool runs_within_another(const plimsoll::Kernel& kernel) {
  const Attention* attention = kernel.attention();
  return attention && attention->part != Attention::Part::forward && attention->part != Attention::Part::backward;
}

bool is_of_cudnn(const Attention& attention) {
  return attention.library == AttentionLibrary::cudnn || attention.library == AttentionLibrary::transformer_engine;
}

std::string why_own_attention(const Attention& attention, Backend& backend) {
  if (!is_of_cudnn(attention)) return fmt::format("no library runs {}'s", name_of(attention.library));
  return backend.library_cannot(attention, HeadOrder::tokens_first);
}

Operands operands_of(const plimsoll::Kernel& kernel, Backend& backend) {
  const DeviceShape device = backend.shape();
  if (const Product* product = kernel.product()) {
    const GemmPlace place(*product, device);
    return {product->batch * (place.a + place.b), product->batch * place.d};
  }
  if (kernel.kind() == ProgramKind::convolution && kernel.flops() > 0)  // those without arithmetic lay windows out for the product behind them
    refuse("convolutions of a library, and depthwise ones, have no calibration kernel", "replay",
           "cudnn false runs those of all channels as windows and a product, as PyTorch does without cuDNN");
  if (runs_within_another(kernel)) return {};
  if (const Attention* fused = main_attention(kernel)) {
    if (why_own_attention(*fused, backend).empty()) return LibraryAttention(*fused).operands();
    const TableAttention attention = attention_of(*fused, device);
    const std::int64_t one = attention.tensor(), per_row = attention.rows() * 4;
    if (fused->part == Attention::Part::forward) return {3 * one, one + per_row};
    return {5 * one + per_row, 5 * one + per_row};
  }
  return {kernel.bytes_read(), result_bytes(kernel, device)};
}

std::vector<Operands> operands_of(const StepProgram& program, Backend& backend) {
  std::vector<Operands> needs;
  for (const plimsoll::Kernel& kernel : program.kernels) needs.push_back(operands_of(kernel, backend));
  return needs;
}

/// Random bits are no numbers of bf16 that a training run sees: the upper half of an fp32 is, so it is there twice.
std::vector<std::byte> operand_numbers(const DeviceShape& device, std::uint64_t seed) {
  std::vector<std::byte> data = make_buffers(kernel_named("copy"), {1 << 18}, device, seed)[0];
  for (std::size_t i = 0; i + 4 <= data.size(); i += 4) std::memcpy(&data[i], &data[i + 2], 2);
  return data;
}

Work run_program_kernel(Backend& backend, const plimsoll::Kernel& kernel, void* from, void* to, StreamId stream) {
  if (const Product* product = kernel.product()) return run_gemm(backend, *product, from, to, stream);
  if (runs_within_another(kernel)) return {0, 0, 0};
  if (const Attention* fused = main_attention(kernel)) {
    if (why_own_attention(*fused, backend).empty()) {
      const LibraryAttention attention(*fused);
      backend.library_attention(attention.call(from, to), stream);
      return {static_cast<double>(attention.operands().read), static_cast<double>(attention.operands().written), kernel.flops()};
    }
    const TableAttention attention = attention_of(*fused, backend.shape());
    return fused->part == Attention::Part::forward ? attention_forward(backend, attention, from, to, stream)
                                                   : attention_backward(backend, attention, from, to, stream);
  }
  const RowWise* rows = long_softmax(kernel, backend.shape());
  Work done = rows ? run_long_softmax(backend, kernel, *rows, from, to, stream)
                   : backend.stream_bytes(kernel.kind(), from, kernel.bytes_read(), to, result_bytes(kernel, backend.shape()), stream);
  done.flops += kernel.flops();
  return done;
}

}  // namespace plimsoll::calibrate
