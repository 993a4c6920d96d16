// Kernels that were timed on real devices, as the program describes them (tests/cost/data).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "plimsoll/kernel.hpp"
#include "units/json_reader.hpp"

namespace plimsoll::silicon {

struct TimedKernel {
  std::string kind, what;  ///< the section of the file; the operator
  Kernel kernel;
  double launches = 1, microseconds = 0;
};

/// The value of that name among those from 0 on that `name_of` names.
template <class Enum>
Enum named(const JsonValue& value, std::initializer_list<std::string_view> names) {
  int i = 0;
  for (const std::string_view name : names) {
    if (value.text() == name) return static_cast<Enum>(i);
    ++i;
  }
  fail("'" + value.text() + "' is not known", value.where());
}

inline DType type_of(const JsonValue& value) {
  for (int i = 0; i <= static_cast<int>(DType::fp64); ++i)
    if (value.text() == name_of(static_cast<DType>(i))) return static_cast<DType>(i);
  fail("'" + value.text() + "' is no type", value.where());
}

inline Operand operand_of(const JsonValue& value) {
  return {value.at(0).integer(0, std::int64_t{1} << 40), type_of(value.at(1)),
          named<Walk>(value.at(2), {"contiguous", "broadcast", "strided", "transposed"})};
}

inline Operands operands_of(const JsonValue& row) {
  Operands operands;
  for (const JsonValue& each : row["reads"].elements()) operands.read(operand_of(each));
  for (const JsonValue& each : row["writes"].elements()) operands.write(operand_of(each));
  return operands;
}

inline std::int64_t count(const JsonValue& row, std::string_view key) { return row[key].integer(0, std::int64_t{1} << 40); }

inline Kernel pointwise(const JsonValue& row) {
  Pointwise kernel{named<Pointwise::Form>(row["form"], {"map", "concatenate", "random", "fused"}), count(row, "elements"), operands_of(row)};
  kernel.dimensions = static_cast<std::uint8_t>(count(row, "dimensions"));
  return {kernel};
}

inline Kernel reduction(const JsonValue& row) {
  return {Reduction{named<Reduction::Axis>(row["axis"], {"inner", "outer", "all"}), count(row, "outputs"), count(row, "reduced"),
                    operands_of(row)}};
}

inline Kernel row_wise(const JsonValue& row) {
  const auto function = named<RowWise::Function>(
      row["function"], {"softmax", "softmax_backward", "log_softmax", "log_softmax_backward", "layer_norm", "layer_norm_backward",
                        "norm_weight_backward", "rms_norm", "rms_norm_backward", "group_norm", "group_norm_backward", "cross_entropy"});
  return {RowWise{function, count(row, "rows"), count(row, "columns"), operands_of(row)}};
}

inline Kernel gather(const JsonValue& row) {
  const auto function = named<Gather::Function>(row["function"], {"embedding", "embedding_backward", "index", "scatter", "sort", "top_k"});
  return {Gather{function, count(row, "elements"), operands_of(row)}};
}

inline Kernel multi_tensor(const JsonValue& row) {
  return {MultiTensor{named<MultiTensor::Function>(row["function"], {"map", "norm", "copy", "fused"}), count(row, "tensors"),
                      count(row, "elements"), operands_of(row)}};
}

inline Kernel attention(const JsonValue& row) {
  Attention kernel;
  kernel.library = named<AttentionLibrary>(row["library"], {"cudnn", "flash2", "flash3", "memory_efficient"});
  kernel.part = named<Attention::Part>(row["part"], {"forward", "combine", "backward", "delta", "convert", "sum_heads"});
  kernel.type = type_of(row["type"]);
  kernel.causal = row["causal"].boolean();
  kernel.dropout = row["dropout"].boolean();
  kernel.batch = count(row, "batch");
  kernel.heads = count(row, "heads");
  kernel.kv_heads = count(row, "kv_heads");
  kernel.queries = count(row, "queries");
  kernel.keys = count(row, "keys");
  kernel.head_dim = kernel.value_dim = count(row, "head_dim");
  return {kernel};
}

/// All rows of a file of timed kernels.
inline std::vector<TimedKernel> read(const std::string& path) {
  const JsonDocument document = JsonDocument::read_file(path);
  const std::pair<const char*, Kernel (*)(const JsonValue&)> sections[] = {{"pointwise", pointwise}, {"reduction", reduction},
                                                                           {"row_wise", row_wise},   {"gather", gather},
                                                                           {"multi_tensor", multi_tensor}, {"attention", attention}};
  std::vector<TimedKernel> rows;
  for (const auto& [name, make] : sections)
    if (const auto section = document.root().find(name))
      for (const JsonValue& row : section->elements()) {
        const auto what = row.find("what");
        rows.push_back({name, what ? what->text() : std::string(), make(row), row["n"].number(1, 1e9), row["us"].number(1e-3, 1e9)});
      }
  return rows;
}

}  // namespace plimsoll::silicon
