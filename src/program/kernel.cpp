#include "plimsoll/kernel.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace plimsoll {
namespace {

template <class... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

double real(std::int64_t count) { return static_cast<double>(count); }

KernelKind kind_of_part(const Attention& attention) {
  const bool forward = attention.part == Attention::Part::forward || attention.part == Attention::Part::combine;
  return forward ? KernelKind::attention : KernelKind::attention_backward;
}

struct Traffic {
  std::int64_t read = 0, written = 0;
};

Traffic traffic_of(const Product& p) {
  const std::int64_t result = p.batch * p.m * p.n * size_of(p.result);
  return {p.batch * p.k * (p.m * size_of(p.a) + p.n * size_of(p.b)) + (p.accumulates ? result : 0), result};
}

Traffic traffic_of(const Attention& a) {
  const std::int64_t element = size_of(a.type), wide = 4;
  const std::int64_t query = a.batch * a.heads * a.queries * a.head_dim, out = a.batch * a.heads * a.queries * a.value_dim;
  const std::int64_t keys = a.batch * a.kv_heads * a.keys, key_value = keys * (a.head_dim + a.value_dim);
  const std::int64_t sums = a.batch * a.heads * a.queries * wide;
  const std::int64_t mask = a.masked ? a.batch * a.queries * a.keys * element : 0;
  switch (a.part) {
    case Attention::Part::forward:
      return {(query + key_value) * element + mask, out * element + sums};
    case Attention::Part::combine:
      return {out * wide + sums, out * element};
    case Attention::Part::backward:
      return {(query + key_value + 2 * out) * element + 2 * sums + mask, query * wide + key_value * element};
    case Attention::Part::delta:
      return {2 * out * element, sums};
    case Attention::Part::convert:
      return {query * wide, query * element};
    case Attention::Part::sum_heads:
      return {a.batch * a.heads * a.keys * a.head_dim * element, keys * a.head_dim * element};
  }
  return {};
}

Traffic traffic_of(const Convolution& c) {
  const std::int64_t element = size_of(c.type);
  const std::int64_t image = c.batch * c.in * c.image, result = c.batch * c.out * c.result, filter = c.out * c.in / c.groups * c.window;
  switch (c.pass) {
    case Convolution::Pass::forward:
      return {(image + filter) * element, result * element};
    case Convolution::Pass::input_gradient:
      return {(result + filter) * element, image * element};
    case Convolution::Pass::weight_gradient:
      return {(image + result) * element, filter * element};
  }
  return {};
}

Traffic traffic_of(const Unspecified& u) { return {u.bytes_read, u.bytes_written}; }

template <class Bound>
Traffic traffic_of(const Bound& bound) {
  return {bound.operands.bytes_read(), bound.operands.bytes_written()};
}

DType type_of(const Operands& operands) {
  const Operand* widest = nullptr;
  for (std::size_t i = operands.reads(); i < operands.size(); ++i)
    if (!widest || operands[i].elements > widest->elements) widest = &operands[i];
  if (!widest && operands.size() > 0) widest = &operands[0];
  return widest ? widest->type : DType::fp32;
}

/// Mixes words into a hash (the finaliser of splitmix64).
class Hash {
 public:
  template <class Word>
  Hash& operator<<(Word word) {
    state_ ^= static_cast<std::uint64_t>(word) + 0x9e3779b97f4a7c15ULL + (state_ << 6U) + (state_ >> 2U);
    state_ = (state_ ^ (state_ >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    return *this;
  }
  Hash& operator<<(double number) { return *this << static_cast<std::int64_t>(number); }
  Hash& operator<<(const Operands& operands) {
    for (const Operand& operand : operands)
      *this << (operand.elements * 256 + static_cast<std::int64_t>(operand.type) * 4 + static_cast<std::int64_t>(operand.walk));
    return *this << operands.reads();
  }
  std::size_t value() const { return static_cast<std::size_t>(state_ ^ (state_ >> 31U)); }

 private:
  std::uint64_t state_ = 0;
};

std::string walked(const Operands& operands) {
  std::string text;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    text += fmt::format("{}{}{}", i == 0 ? "" : i == operands.reads() ? " -> " : ", ", name_of(operand.type),
                        operand.walk == Walk::contiguous ? std::string() : fmt::format(" {}", name_of(operand.walk)));
  }
  return text;
}

std::string_view name_of(Attention::Part part) {
  constexpr std::string_view kNames[] = {"forward", "combine", "backward", "delta", "convert", "sum heads"};
  return kNames[static_cast<std::size_t>(part)];
}

std::string_view name_of(RowWise::Function function) {
  constexpr std::string_view kNames[] = {"softmax",  "softmax backward",  "log_softmax", "log_softmax backward", "layer norm", "layer norm backward",
                                         "norm weight backward", "rms norm", "rms norm backward", "group norm", "group norm backward",
                                         "cross entropy", "rope", "quantize"};
  return kNames[static_cast<std::size_t>(function)];
}

std::string_view name_of(Gather::Function function) {
  constexpr std::string_view kNames[] = {"embedding", "embedding backward", "index", "scatter", "sort", "top k", "nll loss", "scan", "permute"};
  return kNames[static_cast<std::size_t>(function)];
}

std::string described(const Product& p) {
  std::string text = fmt::format("{} {}product {} x {} x {}", name_of(p.a), p.grouped ? "grouped " : "", p.m, p.n, p.k);
  if (p.batch > 1) text += fmt::format(" x {}", p.batch);
  text += fmt::format(", {} {}", p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N');
  if (p.arithmetic == Arithmetic::tf32) text += ", tf32";
  if (p.arithmetic == Arithmetic::simt) text += ", without tensor cores";
  if (p.result != p.a) text += fmt::format(", to {}", name_of(p.result));
  if (p.epilogue != Epilogue::none) text += ", with an epilogue";
  if (p.accumulates) text += ", added";
  if (p.alignment < 16) text += fmt::format(", aligned to {} B", p.alignment);
  return text;
}

std::string described(const Attention& a) {
  return fmt::format("{} attention {} by {}, {} x {} heads, {} x {}, heads of {}{}{}", name_of(a.type), name_of(a.part), name_of(a.library),
                     a.batch, a.heads, a.queries, a.keys, a.head_dim, a.causal ? ", causal" : "", a.dropout ? ", dropout" : "");
}

std::string_view name_of(Pointwise::Form form) {
  constexpr std::string_view kNames[] = {"pointwise", "concatenate", "random", "fused"};
  return kNames[static_cast<std::size_t>(form)];
}

std::string described(const Pointwise& p) { return fmt::format("{} {}, {} elements", name_of(p.form), walked(p.operands), p.elements); }
std::string described(const Reduction& r) { return fmt::format("reduction {}, {} of {} each", walked(r.operands), r.outputs, r.reduced); }
std::string described(const RowWise& r) { return fmt::format("{} {}, {} x {}", name_of(r.function), walked(r.operands), r.rows, r.columns); }
std::string described(const Gather& g) { return fmt::format("{} {}, {} elements", name_of(g.function), walked(g.operands), g.elements); }
std::string described(const MultiTensor& m) {
  return fmt::format("multi-tensor {}, {} elements of {} tensors", walked(m.operands), m.elements, m.tensors);
}
std::string described(const Convolution& c) {
  return fmt::format("{} convolution {} x {} to {} channels, {} places, window of {}", name_of(c.type), c.batch, c.in, c.out, c.result, c.window);
}
std::string described(const Unspecified& u) {
  return fmt::format("{} kernel of {}, {} B", name_of(u.kind), name_of(u.type), u.bytes_read + u.bytes_written);
}

}  // namespace

std::string_view name_of(KernelKind kind) {
  constexpr std::string_view kNames[kKernelKinds] = {"gemm",      "attention", "attention_backward", "elementwise",
                                                     "reduction", "gather",    "multi_tensor",       "convolution"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(Walk walk) {
  constexpr std::string_view kNames[] = {"contiguous", "broadcast", "strided", "transposed"};
  return kNames[static_cast<std::size_t>(walk)];
}

std::string_view name_of(AttentionLibrary library) {
  constexpr std::string_view kNames[] = {
      "cudnn", "flash2", "flash3", "memory_efficient", "flex", "triton", "composable_kernel", "aotriton", "transformer_engine", "flash4"};
  return kNames[static_cast<std::size_t>(library)];
}

Operands::Operands(std::initializer_list<Operand> reads, std::initializer_list<Operand> writes) {
  for (const Operand& operand : reads) read(operand);
  for (const Operand& operand : writes) write(operand);
}

void Operands::read(const Operand& operand) {
  if (size_ == kMost - 2) {  // places are kept for two results
    list_[size_ - 1U].elements += operand.elements * size_of(operand.type) / size_of(list_[size_ - 1U].type);
    return;
  }
  list_[size_++] = operand;
  reads_ = size_;
}

void Operands::write(const Operand& operand) {
  if (size_ == kMost) {
    list_[size_ - 1U].elements += operand.elements * size_of(operand.type) / size_of(list_[size_ - 1U].type);
    return;
  }
  list_[size_++] = operand;
}

std::int64_t Operands::bytes_read() const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < reads_; ++i) sum += list_[i].bytes();
  return sum;
}

std::int64_t Operands::bytes_written() const {
  std::int64_t sum = 0;
  for (std::size_t i = reads_; i < size_; ++i) sum += list_[i].bytes();
  return sum;
}

double Attention::pairs() const {
  const double square = real(queries) * real(keys);
  if (window > 0 && window < keys) {  // a band: the first rows see fewer
    const double band = real(queries) * real(window) - (causal ? 0.5 * real(window) * real(window) : 0);
    return std::min(band, causal ? 0.5 * square : square);
  }
  return causal ? 0.5 * square : square;
}

KernelKind Kernel::kind() const {
  return std::visit(Overloaded{[](const Unspecified& u) { return u.kind; }, [](const Product&) { return KernelKind::gemm; },
                               [](const Attention& a) { return kind_of_part(a); }, [](const Pointwise&) { return KernelKind::elementwise; },
                               [](const Reduction&) { return KernelKind::reduction; }, [](const RowWise&) { return KernelKind::reduction; },
                               [](const Gather&) { return KernelKind::gather; }, [](const MultiTensor&) { return KernelKind::multi_tensor; },
                               [](const Convolution&) { return KernelKind::convolution; }},
                    work);
}

DType Kernel::type() const {
  return std::visit(Overloaded{[](const Unspecified& u) { return u.type; }, [](const Product& p) { return p.a; },
                               [](const Attention& a) { return a.type; }, [](const Convolution& c) { return c.type; },
                               [](const auto& bound) { return type_of(bound.operands); }},
                    work);
}

double Kernel::flops() const {
  return std::visit(
      Overloaded{[](const Unspecified& u) { return u.flops; },
                 [](const Product& p) { return 2.0 * real(p.m) * real(p.n) * real(p.k) * real(p.batch); },
                 [](const Attention& a) {
                   const double passes = a.part == Attention::Part::forward ? 1.0 : a.part == Attention::Part::backward ? 2.5 : 0.0;
                   return passes * 2.0 * real(a.batch * a.heads * (a.head_dim + a.value_dim)) * a.pairs();
                 },
                 [](const Convolution& c) { return 2.0 * real(c.batch * c.out * c.result) * real(c.in / c.groups * c.window); },
                 [](const Reduction& r) { return real(r.outputs) * real(r.reduced); },
                 [](const RowWise& r) { return real(r.rows) * real(r.columns); }, [](const auto& each) { return real(each.elements); }},
      work);
}

std::int64_t Kernel::bytes_read() const {
  return std::visit([](const auto& each) { return traffic_of(each).read; }, work);
}

std::int64_t Kernel::bytes_written() const {
  return std::visit([](const auto& each) { return traffic_of(each).written; }, work);
}

std::size_t hash_of(const Kernel& kernel) {
  Hash hash;
  hash << kernel.work.index();
  std::visit(
      Overloaded{[&](const Unspecified& u) { hash << u.kind << u.type << u.flops << u.bytes_read << u.bytes_written; },
                 [&](const Product& p) {
                   hash << p.m << p.n << p.k << p.batch << (p.transpose_a * 2 + p.transpose_b * 1) << p.a << p.b << p.result << p.arithmetic
                        << p.scaling << p.epilogue << (p.accumulates * 2 + p.grouped * 1) << p.alignment;
                 },
                 [&](const Attention& a) {
                   hash << a.library << a.part << a.type << (a.causal * 4 + a.masked * 2 + a.dropout * 1) << a.batch << a.heads << a.kv_heads
                        << a.queries << a.keys << a.head_dim << a.value_dim << a.window;
                 },
                 [&](const Pointwise& p) { hash << p.form << p.elements << p.dimensions << p.operands; },
                 [&](const Reduction& r) { hash << r.axis << r.outputs << r.reduced << r.operands; },
                 [&](const RowWise& r) { hash << r.function << r.rows << r.columns << r.operands; },
                 [&](const Gather& g) { hash << g.function << g.elements << g.operands; },
                 [&](const MultiTensor& m) { hash << m.function << m.tensors << m.elements << m.operands; },
                 [&](const Convolution& c) {
                   hash << c.pass << c.type << c.batch << c.in << c.out << c.groups << c.image << c.result << c.window << c.channels_last;
                 }},
      kernel.work);
  return hash.value();
}

std::string describe(const Kernel& kernel) {
  return std::visit([](const auto& each) { return described(each); }, kernel.work);
}

}  // namespace plimsoll
