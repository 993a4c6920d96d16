// Fused attention: FlashAttention-2 (flash.h: Flash_fwd_params) and PyTorch's memory-efficient kernels (mem_eff_attention/kernel_*.h: Params).
#include <charconv>
#include <vector>

#include "rehearse/kernel_readers.hpp"
#include "rehearse/signature.hpp"
#include "units/text.hpp"

namespace plimsoll::rehearse {
namespace {

std::int64_t number_or_zero(std::string_view text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::int64_t grid(const Launch& launch, int axis) { return static_cast<std::int64_t>(std::min<std::uint64_t>(launch.blocks[axis], 1U << 31U)); }

bool plausible(const Attention& a) {
  constexpr std::int64_t kMostLength = 1 << 26, kMostHeads = 1 << 20, kMostDim = 4096;
  return a.batch > 0 && a.batch <= kMostHeads && a.heads > 0 && a.heads <= kMostHeads && a.kv_heads > 0 && a.kv_heads <= a.heads &&
         a.queries > 0 && a.queries <= kMostLength && a.keys > 0 && a.keys <= kMostLength && a.head_dim > 0 && a.head_dim <= kMostDim &&
         a.value_dim > 0 && a.value_dim <= kMostDim;
}

// ---- flash -----------------------------------------------------------------------------------------------------------

std::optional<Attention::Part> flash_part(std::string_view name) {
  using Part = Attention::Part;
  constexpr std::pair<std::string_view, Part> kParts[] = {{"flash_bwd_dot_do_o_kernel", Part::delta},
                                                          {"flash_bwd_convert_dq_kernel", Part::convert},
                                                          {"flash_bwd_dq_dk_dv", Part::backward},
                                                          {"flash_fwd_splitkv_combine_kernel", Part::combine},
                                                          {"flash_fwd_splitkv_kernel", Part::forward},
                                                          {"flash_fwd_kernel", Part::forward}};
  for (const auto& [sign, part] : kParts)
    if (contains(name, sign)) return part;
  return {};
}

/// Template flags of the kernels, behind their traits: forward <traits, dropout, causal, …>, backward <traits, dropout, causal, …>. The traits
/// stand in a namespace or not, by release; a kernel whose first argument they are not has no such flags.
bool flash_flag(std::string_view name, std::size_t i) {
  const auto arguments = template_arguments(name, "_kernel<");
  return i < arguments.size() && contains(arguments[0], "_kernel_traits<") && arguments[i] == "true";
}

/// Flash_fwd_params: three addresses, nine strides, h, h_k, their ratio; o and p addresses and strides; b, seqlen_q, seqlen_k, …, d.
std::optional<Kernel> flash_by_parameters(Attention attention, const Launch& launch) {
  const std::string_view parameters = launch.arguments.bytes(0);
  const auto heads = word_at(parameters, 96), kv_heads = word_at(parameters, 100), batch = word_at(parameters, 176);
  const auto queries = word_at(parameters, 180), keys = word_at(parameters, 184), head_dim = word_at(parameters, 192);
  if (!heads || !kv_heads || !batch || !queries || !keys || !head_dim) return {};
  attention.batch = *batch;
  attention.heads = *heads;
  attention.kv_heads = *kv_heads;
  attention.queries = *queries;
  attention.keys = *keys;
  attention.head_dim = attention.value_dim = *head_dim;
  if (!plausible(attention)) return {};  // any bytes may stand there, and the batch divides
  const bool of_this_launch = attention.part == Attention::Part::combine || (grid(launch, 1) == *batch && grid(launch, 2) == *heads) ||
                              (grid(launch, 1) % *batch == 0 && grid(launch, 2) == *batch * *heads);  // splits, then batch · heads
  if (!of_this_launch) return {};
  return Kernel{attention};
}

/// By name and grid alone: (blocks of queries or keys, batch, heads), blocks of traits <head dimension, queries, keys, …>. Lengths are
/// rounded to whole blocks and taken as equal, heads as not shared: no more is told.
std::optional<Kernel> flash_by_grid(Attention attention, std::string_view name, const Launch& launch) {
  const auto traits = template_arguments(name, "kernel_traits<");
  if (traits.size() < 3 || (attention.part != Attention::Part::forward && attention.part != Attention::Part::backward)) return {};
  attention.batch = grid(launch, 1);
  attention.heads = attention.kv_heads = grid(launch, 2);
  attention.queries = attention.keys = grid(launch, 0) * number_or_zero(traits[attention.part == Attention::Part::forward ? 1 : 2]);
  attention.head_dim = attention.value_dim = number_or_zero(traits[0]);
  if (!plausible(attention)) return {};
  const Kernel whole{attention};
  return Kernel{Unspecified{whole.kind(), attention.type, whole.flops(), whole.bytes_read(), whole.bytes_written()}};
}

std::optional<Kernel> flash(std::string_view name, const Launch& launch) {
  const auto part = flash_part(name);
  if (!part) return {};
  Attention attention;
  attention.library = AttentionLibrary::flash2;
  attention.part = *part;
  attention.type = first_type(name);
  attention.dropout = flash_flag(name, 1);
  attention.causal = flash_flag(name, 2);
  if (auto kernel = flash_by_parameters(attention, launch)) return kernel;
  return flash_by_grid(attention, name, launch);
}

// ---- memory-efficient ------------------------------------------------------------------------------------------------

/// Where the sizes stand in the structure of a direction; they moved up by four bytes when sliding windows came (PyTorch 2.4). `strides`: from
/// where the rows of queries, keys and values are as far apart as three numbers of eight bytes say; 0 where they have four.
struct Layout {
  std::size_t head_dim, value_dim, queries, keys, mask, bias, strides = 0;
};

/// Whether there are such strides: what stands in their place in the other layouts has two numbers in one.
bool has_long_strides(std::string_view parameters, std::size_t from) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  for (std::size_t i = 0; i < 3; ++i) {
    const auto stride = long_at(parameters, from + 8 * i);
    if (!stride || *stride < 1 || *stride > kMost) return false;
  }
  return true;
}

std::optional<Kernel> with_layout(Attention attention, const Layout& at, const Launch& launch) {
  const std::string_view parameters = launch.arguments.bytes(0);
  const auto head_dim = word_at(parameters, at.head_dim), value_dim = word_at(parameters, at.value_dim);
  const auto queries = word_at(parameters, at.queries), keys = word_at(parameters, at.keys), mask = word_at(parameters, at.mask);
  const auto bias = long_at(parameters, at.bias);
  if (!head_dim || !value_dim || !queries || !keys || !mask || !bias) return {};
  if (at.strides > 0 && !has_long_strides(parameters, at.strides)) return {};
  attention.head_dim = *head_dim;
  attention.value_dim = *value_dim;
  attention.queries = *queries;
  attention.keys = *keys;
  attention.heads = attention.kv_heads = grid(launch, 1);
  attention.batch = grid(launch, 2);
  constexpr std::int64_t kByte = 0xff;
  attention.causal = (*mask & kByte) != 0;
  attention.masked = *bias != 0;
  return plausible(attention) ? std::optional(Kernel{attention}) : std::nullopt;
}

/// AttentionKernel<type, architecture, aligned, queries of a block, …>::Params; AttentionBackwardKernel's has no such check but its heads.
std::optional<Kernel> memory_efficient(std::string_view name, const Launch& launch) {
  const bool backward = contains(name, "fmha_cutlassB");
  if (!backward && !contains(name, "fmha_cutlassF")) return {};
  Attention attention;
  attention.library = AttentionLibrary::memory_efficient;
  attention.part = backward ? Attention::Part::backward : Attention::Part::forward;
  attention.type = first_type(name);
  const Layout windowed = backward ? Layout{144, 148, 152, 156, 164, 24} : Layout{96, 100, 104, 108, 116, 24};
  const Layout split{144, 148, 152, 156, 168, 24, 176};  // of the backward pass, since the splits of keys are told in it
  const Layout earlier = backward ? Layout{140, 144, 148, 152, 160, 24} : Layout{92, 96, 100, 104, 112, 24};
  const auto blocks = template_arguments(name, "AttentionKernel<");
  std::vector<Layout> layouts{windowed, earlier};
  if (backward) layouts.insert(layouts.begin(), split);
  for (const Layout& layout : layouts) {
    auto kernel = with_layout(attention, layout, launch);
    if (!kernel) continue;
    const Attention& found = *kernel->attention();
    const std::int64_t block = blocks.size() > 3 ? number_or_zero(blocks[3]) : 0;
    const bool heads = !backward || word_at(launch.arguments.bytes(0), layout.keys + 4) == found.heads;
    if (heads && (block <= 0 || (found.queries + block - 1) / block == grid(launch, 0))) return kernel;
  }
  return {};
}

}  // namespace

std::optional<Kernel> read_attention(std::string_view name, const Launch& launch) {
  if (auto kernel = flash(name, launch)) return kernel;
  return memory_efficient(name, launch);
}

}  // namespace plimsoll::rehearse
