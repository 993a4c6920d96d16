#include "cost/kernel_constants.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::cost {
namespace {

constexpr double kMostInstructions = 1e6;
constexpr std::int64_t kMostElements = std::int64_t{1} << 30;

/// An object whose numbers share one provenance and one source.
JsonValue sourced(const JsonValue& object) {
  hardware::read_provenance(object["provenance"]);
  object["source"].text();
  if (const auto note = object.find("note")) note->mark_read();
  return object;
}

double instructions(const JsonValue& object, std::string_view key = "instructions") { return object[key].number(0, kMostInstructions); }
Seconds seconds(const JsonValue& object, std::string_view key = "start") { return hardware::seconds_value(object[key]); }

KernelLaw kernel_law(const JsonValue& object) {
  const bool has_instructions = object.has("instructions");
  return {seconds(sourced(object)), has_instructions ? instructions(object) : 0};
}

double lanes(const JsonValue& object) {
  sourced(object);
  return object["value"].number(1, 1024);
}

CacheLaw read_cache(const JsonValue& object) {
  sourced(object);
  CacheLaw law{object["bytes_per_clock"].number(0.1, 1e4), object["held"].number(0, 100), object["gone"].number(0, 100)};
  if (law.gone <= law.held) object["gone"].expected("more than /cache/held");
  return law;
}

PointwiseLaws read_pointwise(const JsonValue& object) {
  PointwiseLaws laws;
  laws.contiguous = kernel_law(object["contiguous"]);
  laws.casting = kernel_law(object["casting"]);
  laws.walking = kernel_law(object["walking"]);
  laws.concatenating = kernel_law(object["concatenating"]);
  laws.random = kernel_law(object["random"]);
  laws.fused = kernel_law(object["fused"]);
  const JsonValue casts = sourced(object["rocm_cast_transpose"]), by_target = casts["instructions"];
  for (const std::string& target : by_target.keys()) laws.rocm_cast_transpose[target] = {seconds(casts), instructions(by_target, target)};
  laws.casting_per_operand = instructions(object["casting"], "per_operand");
  laws.walking_per_operand = instructions(object["walking"], "per_operand");
  laws.walking_per_dimension = instructions(object["walking"], "per_dimension");
  laws.walking_cast = instructions(object["walking"], "casting");
  laws.sector = hardware::read_sourced(object["sector"], hardware::bytes_value).value;
  laws.fused_sector = hardware::read_sourced(object["fused_sector"], hardware::bytes_value).value;
  return laws;
}

ReductionLaws read_reduction(const JsonValue& object) {
  ReductionLaws laws;
  const JsonValue inner = object["inner"], outer = sourced(object["outer"]);
  laws.inner = kernel_law(inner);
  laws.inner_element = seconds(inner, "per_element");
  laws.longest_chain = inner["longest_chain"].integer(1, kMostElements);
  laws.inner_result = instructions(inner, "per_result");
  laws.inner_strided = instructions(inner, "strided");
  laws.outer_result = instructions(outer, "per_result");
  laws.outer_strided = instructions(outer, "strided");
  laws.all = kernel_law(object["all"]);
  laws.outer_start = seconds(outer);
  laws.outer_element = seconds(outer, "per_element");
  laws.outer_part = seconds(outer, "per_part");
  laws.outer_block = seconds(outer, "per_block");
  return laws;
}

RowLaw row_law(const JsonValue& object) { return {seconds(sourced(object)), instructions(object, "instructions_per_row")}; }

RowWiseLaws read_row_wise(const JsonValue& object) {
  RowWiseLaws laws;
  const JsonValue softmax = sourced(object["softmax"]), weight = sourced(object["weight_gradient"]);
  laws.softmax_start = seconds(softmax);
  laws.softmax_instructions = instructions(softmax);
  laws.softmax_instructions_16_bit = instructions(softmax, "instructions_16_bit");
  laws.row_in_shared_memory = hardware::bytes_value(softmax["row_in_shared_memory"]);
  laws.blocks_per_unit = softmax["blocks_per_unit"].integer(1, 32);
  laws.layer_norm = row_law(object["layer_norm"]);
  laws.norm_backward = row_law(object["norm_backward"]);
  laws.rms_norm = row_law(object["rms_norm"]);
  laws.fused = {seconds(sourced(object["fused"])), 0};
  const JsonValue quantization = sourced(object["quantization"]);
  laws.quantization_start = seconds(quantization);
  laws.hadamard_greatest = instructions(quantization, "hadamard_greatest");
  laws.hadamard_columns = instructions(quantization, "hadamard_columns");
  laws.hadamard_both_ways = instructions(quantization, "hadamard_both_ways");
  laws.weight_gradient_start = seconds(weight);
  laws.weight_gradient_row = seconds(weight, "per_row");
  laws.weight_gradient_columns = weight["columns_per_block"].integer(1, 4096);
  return laws;
}

/// In the order of Gather::Function.
std::vector<KernelLaw> read_gather(const JsonValue& object) {
  std::vector<KernelLaw> laws;
  for (const char* name : {"embedding", "embedding_backward", "index", "scatter", "sort", "top_k", "nll_loss", "scan", "permute"})
    laws.push_back(kernel_law(object[name]));
  return laws;
}

MultiTensorLaws read_multi_tensor(const JsonValue& object) {
  sourced(object);
  return {seconds(object),
          seconds(object, "chunk_start"),
          seconds(object, "chunk_per_operand"),
          object["chunk"].integer(1, kMostElements),
          instructions(object, "copy_instructions"),
          instructions(object, "fused_instructions")};
}

// ---- attention -------------------------------------------------------------------------------------------------------

AttentionLibrary attention_library(const JsonValue& value) {
  std::vector<std::string> names;
  for (auto i = static_cast<int>(AttentionLibrary::cudnn); i <= static_cast<int>(AttentionLibrary::flash4); ++i) {
    names.emplace_back(name_of(static_cast<AttentionLibrary>(i)));
    if (value.text() == names.back()) return static_cast<AttentionLibrary>(i);
  }
  fail("'" + value.text() + "' is no library of attention", value.where(), suggest(value.text(), names));
}

template <class Value>
Value one_of(const JsonValue& value, std::initializer_list<std::pair<const char*, Value>> choices) {
  std::vector<std::string> names;
  for (const auto& [name, choice] : choices) {
    if (value.text() == name) return choice;
    names.emplace_back(name);
  }
  fail("'" + value.text() + "' is not known here", value.where(), suggest(value.text(), names));
}

std::int64_t head_dimension(const JsonValue& value, const std::string& key) {
  std::int64_t width = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), width);
  if (error != std::errc() || end != key.data() + key.size() || width < 1 || width > 4096) value.expected("keys that are widths of heads");
  return width;
}

std::vector<AttentionLaw::Rate> read_rates(const JsonValue& object) {
  std::vector<AttentionLaw::Rate> rates;
  for (const std::string& key : object.keys()) rates.push_back({head_dimension(object, key), object[key].number(1e-3, 2)});
  const auto narrower = [](const auto& a, const auto& b) { return a.head_dim < b.head_dim; };
  if (rates.empty() || !std::is_sorted(rates.begin(), rates.end(), narrower)) object.expected("rates by rising width of the heads");
  return rates;
}

std::vector<AttentionLaw> read_attention(const JsonValue& array) {
  std::vector<AttentionLaw> laws;
  for (const JsonValue& object : array.elements()) {
    AttentionLaw law;
    sourced(object);
    law.backward = one_of<bool>(object["pass"], {{"forward", false}, {"backward", true}});
    law.type = one_of<DType>(object["type"], {{"16-bit", DType::bf16}, {"fp32", DType::fp32}, {"fp8", DType::fp8}});
    law.family = object["family"].text();
    law.tile = hardware::tile_value(object["tile"]);
    law.prologue = object["prologue"].number(0, 100);
    law.tail = object["tail"].number(0, 10);
    if (const auto dropout = object.find("dropout")) law.dropout = dropout->number(1, 10);
    if (const auto mask = object.find("mask")) law.mask = mask->number(1, 10);
    if (const auto windows = object.find("windows")) law.windows = windows->boolean();
    if (const auto power = object.find("power")) law.power = power->boolean();
    if (const auto matrix = object.find("matrix")) law.matrix = matrix->number(1e-3, 1);
    if (const auto of_device = object.find("of_device")) law.of_device = of_device->boolean();
    law.start = seconds(object);
    law.rates = read_rates(object["rates"]);
    for (const JsonValue& library : object["libraries"].elements()) {
      law.library = attention_library(library);
      laws.push_back(law);
    }
  }
  return laws;
}

KernelConstants read_constants() {
  const JsonDocument document = hardware::shipped_document("hardware/kernels.json");
  const JsonValue root = document.root(), attention = root["attention"];
  root["schema"].text();
  root["note"].mark_read();
  (void)hardware::read_power_exponent(root);  // the hardware's own: plimsoll/power_limit.hpp
  KernelConstants constants;
  constants.nvidia_lanes = lanes(root["lanes"]["NVIDIA"]);
  constants.amd_lanes = lanes(root["lanes"]["AMD"]);
  constants.cache = read_cache(root["cache"]);
  constants.gap = hardware::read_sourced(root["gap"], hardware::seconds_value).value;
  constants.gap_in_graph = hardware::read_sourced(root["gap_in_graph"], hardware::seconds_value).value;
  constants.fill = kernel_law(root["fill"]);
  constants.depthwise = kernel_law(root["depthwise"]);
  constants.generated_products = hardware::read_sourced(root["generated_products"], hardware::positive_share_value).value;
  constants.pointwise = read_pointwise(root["pointwise"]);
  constants.reduction = read_reduction(root["reduction"]);
  constants.row_wise = read_row_wise(root["row_wise"]);
  constants.gather = read_gather(root["gather"]);
  constants.multi_tensor = read_multi_tensor(root["multi_tensor"]);
  constants.attention = read_attention(attention["kernels"]);
  constants.attention_helpers = {kernel_law(attention["delta"]), kernel_law(attention["convert"]), kernel_law(attention["sum_heads"])};
  hardware::read_sources(root);
  hardware::check_complete(root);
  return constants;
}

}  // namespace

const KernelConstants& kernel_constants() {
  static const KernelConstants constants = read_constants();
  return constants;
}

}  // namespace plimsoll::cost
