// Numbers that follow from what is followed (followed.cpp).
#pragma once

#include <string_view>

#include "code/torch/torch.hpp"

namespace plimsoll::code {

/// An operator of torch, whose result is followed where its input is and a rule is known.
Native with_following(std::string_view name, const Native& run);
/// cat() and stack() of these in that dimension of the result, likewise.
void follow_joined(Torch& torch, const std::vector<Value>& parts, int dimension, const Value& result);
/// masked_fill() by a number, likewise.
void follow_masked(Torch& torch, const Value& of, const Value& mask, double number, const Value& result);
/// where() of tensors or numbers, likewise.
void follow_chosen(Torch& torch, const Value& condition, const Value& a, const Value& b, const Value& result);
/// clamp() between numbers, of which one may not be told, likewise.
void follow_clamped(Torch& torch, const Value& of, const Value& least, const Value& most, const Value& result);
/// scatter() of a number along the last dimension, and one_hot(), likewise.
void follow_scattered(Torch& torch, const Value& of, const Value& indices, double number, const Value& result);
void follow_classes(Torch& torch, const Value& indices, std::int64_t classes, const Value& result);
/// pad() with a constant, likewise.
void follow_padded(Torch& torch, const Value& of, const program::Dims& before, double constant, const Value& result);
/// The result of a Python operator on two tensors or numbers, likewise.
void follow_binary(Torch& torch, Operator op, const Value& a, const Value& b, const Value& result);

/// What comparing ids of ordinary tokens with a number says of all of them: `result` is followed where it is known.
void follow_compared_ids(Torch& torch, Operator op, const Value& a, const Value& b, const Value& result);
/// How far ids reach that a tensor or a number may be taken for; 0: it is none.
std::int64_t ids_below(Torch& torch, const Value& value);

}  // namespace plimsoll::code
