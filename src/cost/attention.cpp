// Time of fused attention: blocks of rows over the compute units, each taking its columns tile by tile.
#include <algorithm>

#include "cost/memory_time.hpp"
#include "cost/power.hpp"
#include "plimsoll/cost.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll {
namespace {

using cost::AttentionLaw;

/// Heads narrower than this leave matrix units idle in fused attention.
constexpr std::int64_t kWideHead = 128;
constexpr double kNarrowHead = 0.8;
/// A family of which no kernel was measured.
constexpr std::string_view kElsewhere = "*";
/// Blocks that cost the same end together, half of the last round after the others.
constexpr double kEvenTail = 0.5;

double real(std::int64_t count) { return static_cast<double>(count); }

// ---- which kernel ------------------------------------------------------------------------------------------------------

/// Both 16-bit types run at one rate.
DType type_class(DType type) { return type == DType::fp16 ? DType::bf16 : type; }

const AttentionLaw& law_of(const Attention& attention, const Accelerator& device) {
  const AttentionLaw* elsewhere = nullptr;
  const bool backward = attention.part == Attention::Part::backward;
  for (const AttentionLaw& law : cost::kernel_constants().attention) {
    if (law.library != attention.library || law.backward != backward || law.type != type_class(attention.type)) continue;
    if (law.family == device.family) return law;
    if (law.family == kElsewhere) elsewhere = &law;
  }
  if (!elsewhere)
    refuse("the price of " + std::string(name_of(attention.library)) + " attention in " + std::string(name_of(attention.type)) + " on " +
           device.family + " devices is not known");
  return *elsewhere;
}

/// Of the kernel for heads of that width: the narrowest that holds them, or the widest, in more passes.
const AttentionLaw::Rate& rate_of(const AttentionLaw& law, std::int64_t width) {
  const auto holds = [&](const AttentionLaw::Rate& rate) { return rate.head_dim >= width; };
  const auto found = std::find_if(law.rates.begin(), law.rates.end(), holds);
  return found == law.rates.end() ? law.rates.back() : *found;
}

/// Of the peak of a device whose units multiply less in a clock than those the law was measured on: the products of a tile take 1 / width as
/// many clocks, all else as many as there.
double share_of(const AttentionLaw& law, const AttentionLaw::Rate& rate, const Accelerator& device) {
  const double width = device.attention.matrix_width.value, products = 1 / law.matrix;
  return width == 1 || law.type == DType::fp32 ? rate.share : 1 / (products + (1 / rate.share - products) * width);
}

/// FLOP/s of all compute units within tiles.
FlopsPerSecond speed(const AttentionLaw& law, const AttentionLaw::Rate& rate, const Attention& attention, const Accelerator& device) {
  const MathType math = math_of(attention.type);
  if (!law.of_device) return device.peak(math) * share_of(law, rate, device);
  return device.sustained(math) * ((law.backward ? device.attention.backward : device.attention.forward).value * rate.share);
}

/// Seconds of one tile on one compute unit; narrower heads cost as much as the kernel that holds them.
Seconds tile_time(const AttentionLaw& law, const Attention& attention, const Accelerator& device) {
  const std::int64_t width = std::max(attention.head_dim, attention.value_dim);
  const AttentionLaw::Rate& rate = rate_of(law, width);
  const double held = real(std::max(rate.head_dim, width)) * real(attention.head_dim + attention.value_dim) / real(2 * width);
  const double passes = law.backward ? 10 : 4;
  const double flops = passes * real(law.tile.m * law.tile.n) * held * device.compute_units;
  const double pace = (law.backward ? device.paces.attention_backward : device.paces.attention_forward).value;
  const double extra = (attention.dropout ? law.dropout : 1) * (attention.masked ? law.mask : 1);
  return Seconds(pace * flops / speed(law, rate, attention, device).value * extra);
}

// ---- how many tiles ----------------------------------------------------------------------------------------------------

struct Blocks {
  double tiles = 0, longest = 0;  ///< of one head: all of them, and those of the longest block; prologues included
};

/// Forward: blocks of queries over tiles of keys. Backward: blocks of keys over tiles of queries, which see them from the other side.
/// Causal query i sees the keys up to i + keys − queries, in a window the last of them.
Blocks blocks_of(const Attention& attention, const AttentionLaw& law) {
  const std::int64_t rows = law.backward ? attention.keys : attention.queries, columns = law.backward ? attention.queries : attention.keys;
  const std::int64_t shift = law.backward ? attention.queries - attention.keys : attention.keys - attention.queries;
  const std::int64_t window = law.windows ? attention.window : 0;
  Blocks blocks;
  for (std::int64_t first = 0; first < rows; first += law.tile.m) {
    const std::int64_t last = std::min(rows, first + law.tile.m) - 1;
    std::int64_t from = 0, to = columns;
    if (law.backward) {
      if (attention.causal) from = first + shift;
      if (window > 0) to = last + shift + window;
    } else {
      if (attention.causal) to = last + shift + 1;
      if (window > 0) from = first + shift - window + 1;
    }
    from = std::clamp<std::int64_t>(from, 0, columns);
    to = std::clamp<std::int64_t>(to, from, columns);
    const double tiles = real(ceil_div(to, law.tile.n) - from / law.tile.n) + law.prologue;
    blocks.tiles += tiles;
    blocks.longest = std::max(blocks.longest, tiles);
  }
  return blocks;
}

Seconds main_time(const Attention& attention, const Accelerator& device) {
  const AttentionLaw& law = law_of(attention, device);
  const Blocks blocks = blocks_of(attention, law);
  const double even = blocks.tiles * real(attention.batch * attention.heads) / device.compute_units;
  const double tail = (attention.causal ? law.tail : kEvenTail) * blocks.longest;
  return law.start + tile_time(law, attention, device) * std::max(even + tail, blocks.longest);
}

// ---- its helpers -------------------------------------------------------------------------------------------------------

/// What they read was written by kernels that moved much since.
Seconds helper_time(const cost::KernelLaw& law, double elements, double bytes, const Accelerator& device) {
  return law.start + cost::overlapped(cost::issue_time(device, law.instructions * elements), cost::traffic_time(device, bytes, 1.0));
}

}  // namespace

Seconds attention_time(const Accelerator& device, MathType type, Flops flops, bool backward, std::int64_t head_dim) {
  const double share = (backward ? device.attention.backward : device.attention.forward).value * (head_dim < kWideHead ? kNarrowHead : 1.0);
  return device.gemm.start.value + flops / (device.sustained(type) * share);
}

double cost::boost_power(const Attention& attention, const Accelerator& device) {
  return law_of(attention, device).power ? device.attention.power.value : device.attention.slower;
}

Seconds price(const Attention& attention, const Accelerator& device, const Surroundings& around) {
  const cost::AttentionHelpers& helpers = cost::kernel_constants().attention_helpers;
  const double bytes = real(Kernel{attention}.bytes());
  const double queries = real(attention.batch * attention.heads * attention.queries * attention.head_dim);
  const double keys = real(attention.batch * attention.heads * attention.keys * attention.head_dim);
  switch (attention.part) {
    case Attention::Part::forward:
    case Attention::Part::backward:
      return std::max(slowdown(cost::boost_power(attention, device), device, around) * main_time(attention, device),
                      cost::traffic_time(device, bytes, 1.0));
    case Attention::Part::delta:
      return helper_time(helpers.delta, queries, bytes, device);
    case Attention::Part::convert:
    case Attention::Part::combine:
      return helper_time(helpers.convert, queries, bytes, device);
    case Attention::Part::sum_heads:
      return helper_time(helpers.sum_heads, keys, bytes, device);
  }
  return helper_time(helpers.convert, queries, bytes, device);
}

}  // namespace plimsoll
