// What a record's numbers are called in a StepProgram; numbers of a damaged record stay in bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plimsoll/dtype.hpp"
#include "plimsoll/program.hpp"
#include "rehearse/record.hpp"

namespace plimsoll::rehearse {

DType type_of(record::Type type);

/// cublasLtEpilogue_t and hipblasLtEpilogue_t, as far as training has them; others are none of the kernel's description.
Epilogue epilogue_of(std::uint16_t code);

/// The product of a call, in the terms of its library. Leading dimensions are taken to be the matrices' own.
Product product_of(record::Gemm call);

/// What a call of a library puts on its stream.
struct LibraryWork {
  std::int64_t cleared = 0;     ///< bytes that are set first
  std::vector<Kernel> kernels;  ///< empty: nothing is known of the call
};

/// What a call of cuDNN does, told by its name and the numbers behind it (device/README.md).
LibraryWork library_work(const std::string& name, DType type, std::string_view numbers, std::uint32_t count);

CollectiveKind kind_of(record::Collective op);

/// Bytes of the full buffer of a collective, as program.hpp counts them; `argument`: those that the call names.
std::int64_t full_bytes(CollectiveKind kind, std::int64_t argument, std::int64_t ranks);

/// A sum that does not overflow, whatever the record says.
std::int64_t plus(std::int64_t sum, std::int64_t change);

std::int64_t signed_bytes(std::uint64_t bytes);

/// "0 8 16": the ranks in a text, or none where it is no list of ranks.
std::vector<std::int64_t> numbers_in(const std::string& text);

/// "m n k groups bytes a b": a product of experts in BLAS's terms, each group an even share of what they multiply, its elements' bytes and
/// whether an operand is transposed. It is taken to be of 16-bit numbers, or of 8-bit ones where an element has one byte.
std::optional<record::Gemm> grouped_product(const std::string& text);

/// "backward batch heads kv_heads queries keys head_dim value_dim bytes pairs": a kernel of FlexAttention, and the pairs of query and key of a head
/// that its mask leaves.
std::optional<Attention> flex_attention(const std::string& text);

}  // namespace plimsoll::rehearse
