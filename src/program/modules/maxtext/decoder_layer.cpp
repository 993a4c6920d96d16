#include "program/modules/maxtext/decoder_layer.hpp"

#include "program/kernels.hpp"

namespace plimsoll::program {

Tensor rms_statistic(Tape& tape, const Tensor& x) {
  Tensor statistic = tape.empty({x.size(0)}, DType::fp32);
  reduce(tape, Reduction::Axis::inner, statistic.elements(), {operand(x)}, {operand(statistic)});
  return statistic;
}

Tensor rms_norm_backward(Tape& tape, const Tensor& gradient, const Tensor& x, const Tensor& statistic, const Tensor& residual) {
  const Tensor weight = tape.empty({x.size(1)}, DType::fp32), products = tape.empty({x.size(0)}, DType::fp32);
  reduce(tape, Reduction::Axis::outer, weight.elements(), {operand(gradient), operand(x)}, {operand(weight)});
  reduce(tape, Reduction::Axis::inner, products.elements(), {operand(gradient), operand(x)}, {operand(products)});
  Tensor result = tape.empty(x.sizes(), x.dtype());
  std::vector<Tensor> reads{gradient, x, statistic, products};
  if (residual) reads.push_back(residual);
  fusion(tape, reads, {result});
  return result;
}

MaxtextLayer::MaxtextLayer(Tape& tape, const MaxtextSizes& sizes, const framework::MaxtextKept& kept, bool eight_bits)
    : tape_(tape), sizes_(sizes), kept_(kept) {
  const auto add = [&](const char* name, std::int64_t in, std::int64_t width, CutDimension cut) {
    linears_.emplace_back(tape, std::string("decoder.layers.") + name, in, width, cut, eight_bits);
  };
  add("self_attention.query", sizes.hidden, sizes.query_width(), CutDimension::in);
  add("self_attention.key", sizes.hidden, sizes.key_width(), CutDimension::in);
  add("self_attention.value", sizes.hidden, sizes.key_width(), CutDimension::in);
  add("self_attention.out", sizes.query_width(), sizes.hidden, CutDimension::out);
  add("mlp.wi_0", sizes.hidden, sizes.ffn, CutDimension::in);
  add("mlp.wi_1", sizes.hidden, sizes.ffn, CutDimension::in);
  add("mlp.wo", sizes.ffn, sizes.hidden, CutDimension::out);
}

Tensor MaxtextLayer::stack(std::int64_t width, DType type) const {
  return tape_.empty({sizes_.layers, sizes_.rows(), width}, type, Category::activation);
}

void MaxtextLayer::open_stacks() {
  tape_.operator_name = "scan";
  stacks_.inputs = stack(sizes_.hidden);
  if (kept_.projections) {
    stacks_.query = stack(sizes_.query_width());
    stacks_.key = stack(sizes_.key_width());
    stacks_.value = stack(sizes_.key_width());
  }
  if (kept_.context) {
    stacks_.context = stack(sizes_.query_width());
    stacks_.statistics = stack(sizes_.heads, DType::fp32);
  }
  if (kept_.out_proj) stacks_.out = stack(sizes_.hidden);
  if (kept_.mlpwi) {
    stacks_.gate = stack(sizes_.ffn);
    stacks_.up = stack(sizes_.ffn);
  }
}

/// dynamic-update-slice: what a library's kernel wrote is copied into its place.
void MaxtextLayer::keep(const Tensor& stack, const Tensor& result) const {
  if (stack) fusion(tape_, {result}, {result});
}

/// dynamic-slice for a kernel of a library, which takes no part of a stack.
Tensor MaxtextLayer::kept_slice(const Tensor& stack, std::int64_t width) const {
  Tensor slice = tape_.empty({sizes_.rows(), width}, stack.dtype());
  fusion(tape_, {slice}, {slice});
  return slice;
}

std::vector<Tensor> MaxtextLayer::operands(const std::vector<Linear>& readers, const std::vector<Tensor>& reads, bool of_backward) const {
  std::vector<Tensor> made;
  for (const Linear reader : readers) {
    if (!made.empty() && !at(reader).eight_bits()) {
      made.push_back(made.front());
      continue;
    }
    made.push_back(of_backward ? at(reader).backward_operand(sizes_.rows()) : at(reader).operand(sizes_.rows()));
  }
  const bool one = !at(readers.front()).eight_bits();
  fusion(tape_, reads, one ? std::vector<Tensor>{made.front()} : made);  // siblings become one fusion of several results
  if (of_backward && !one) read_maximum(tape_, reads);                   // the same for all: computed once
  return made;
}

void MaxtextLayer::products(const std::vector<Linear>& which, const std::vector<Tensor>& operands,
                            const std::vector<Tensor>& results) const {
  for (std::size_t i = 0; i < which.size(); ++i) at(which[i]).forward(operands[i], results[i]);
}

/// Of linears that read one tensor: the gradients of their weights, and of what they read.
Tensor MaxtextLayer::gradients(const std::vector<Linear>& which, const std::vector<Tensor>& operands,
                               const std::vector<Tensor>& of_results) const {
  Tensor of_input = row_tensor(at(which.front()).in());
  for (std::size_t i = 0; i < which.size(); ++i) {
    const MaxtextLinear::Gradient gradient = at(which[i]).quantized(of_results[i]);
    at(which[i]).input_gradient(gradient, of_input, i > 0);
    at(which[i]).weight_gradient(operands[i]);
  }
  return of_input;
}

void MaxtextLayer::project(Activations& a) const {
  tape_.operator_name = "projections";
  const Tensor query_before = row_tensor(sizes_.query_width()), key_before = row_tensor(sizes_.key_width());
  a.query = row_tensor(sizes_.query_width());
  a.key = row_tensor(sizes_.key_width());
  a.value = row_tensor(sizes_.key_width());
  products({query, key, value}, operands({query, key, value}, {a.input, a.statistic}, false), {query_before, key_before, a.value});
  fusion(tape_, {query_before}, {a.query});  // rotary positions: sines and cosines are computed on the way
  fusion(tape_, {key_before}, {a.key});
}

namespace {

Attention attention_of(const MaxtextSizes& sizes, Attention::Part part) {
  Attention attention;
  attention.library = AttentionLibrary::cudnn;
  attention.part = part;
  attention.causal = true;
  attention.batch = sizes.batch;
  attention.heads = sizes.heads;
  attention.kv_heads = sizes.kv_heads;
  attention.queries = attention.keys = sizes.length;
  attention.head_dim = attention.value_dim = sizes.head_dim;
  return attention;
}

}  // namespace

void MaxtextLayer::attend(Activations& a) const {
  tape_.operator_name = "attention";
  a.context = row_tensor(sizes_.query_width());
  a.statistics = tape_.empty({sizes_.batch, sizes_.heads, sizes_.length}, DType::fp32);
  tape_.kernel({attention_of(sizes_, Attention::Part::forward)});
}

void MaxtextLayer::add_attention(Activations& a) const {
  tape_.operator_name = "residual";
  a.sum = row_tensor(sizes_.hidden);
  fusion(tape_, {a.input, a.out}, {a.sum});
  a.sum_statistic = rms_statistic(tape_, a.sum);
}

void MaxtextLayer::multiply_in(Activations& a) const {
  tape_.operator_name = "mlp";
  a.gate = row_tensor(sizes_.ffn);
  a.up = row_tensor(sizes_.ffn);
  products({gate, up}, operands({gate, up}, {a.sum, a.sum_statistic}, false), {a.gate, a.up});
}

Tensor MaxtextLayer::forward(const Tensor& x) {
  Activations a;
  a.input = x;
  keep(stacks_.inputs, x);
  a.statistic = rms_statistic(tape_, x);
  project(a);
  keep(stacks_.query, a.query);
  keep(stacks_.key, a.key);
  keep(stacks_.value, a.value);
  attend(a);
  keep(stacks_.context, a.context);
  keep(stacks_.statistics, a.statistics);
  a.out = row_tensor(sizes_.hidden);
  const bool as_it_is = !at(out).eight_bits();
  at(out).forward(as_it_is ? a.context : operands({out}, {a.context}, false).front(), a.out);
  keep(stacks_.out, a.out);
  add_attention(a);
  multiply_in(a);
  keep(stacks_.gate, a.gate);
  keep(stacks_.up, a.up);
  const std::vector<Tensor> hidden = operands({down}, {a.gate, a.up}, false);
  at(down).forward(hidden.front(), a.sum, true);  // the residual connection is the product's beta
  return a.sum;
}

/// What the backward pass reads of the forward one: out of the stacks, or computed again.
MaxtextLayer::Activations MaxtextLayer::again() const {
  const RunningAgain running(tape_);
  Activations a;
  a.input = row_tensor(sizes_.hidden);  // fusions read their slice of the stack themselves
  a.statistic = rms_statistic(tape_, a.input);
  if (stacks_.query) {
    a.query = kept_slice(stacks_.query, sizes_.query_width());
    a.key = kept_slice(stacks_.key, sizes_.key_width());
    a.value = kept_slice(stacks_.value, sizes_.key_width());
  } else {
    project(a);
  }
  if (stacks_.context) {
    a.context = kept_slice(stacks_.context, sizes_.query_width());
    a.statistics = kept_slice(stacks_.statistics, sizes_.heads);
  } else {
    attend(a);
  }
  a.out = row_tensor(sizes_.hidden);
  const bool as_it_is = !at(out).eight_bits();
  if (!stacks_.out) at(out).forward(as_it_is ? a.context : operands({out}, {a.context}, false).front(), a.out);
  add_attention(a);
  if (!stacks_.gate) return multiply_in(a), a;
  a.gate = row_tensor(sizes_.ffn);
  a.up = row_tensor(sizes_.ffn);
  return a;
}

/// The gradient of what the attention's residual connection gave.
Tensor MaxtextLayer::mlp_backward(const Activations& a, const Tensor& gradient) const {
  tape_.operator_name = "mlp";
  const Tensor of_hidden = gradients({down}, operands({down}, {a.gate, a.up}, true), {gradient});
  const Tensor of_gate = row_tensor(sizes_.ffn), of_up = row_tensor(sizes_.ffn);
  fusion(tape_, {of_hidden, a.gate, a.up}, {of_gate, of_up});
  const Tensor of_norm = gradients({gate, up}, operands({gate, up}, {a.sum, a.sum_statistic}, true), {of_gate, of_up});
  return rms_norm_backward(tape_, of_norm, a.sum, a.sum_statistic, gradient);
}

MaxtextLayer::Activations MaxtextLayer::attend_backward() const {
  tape_.operator_name = "attention";
  Activations gradients;
  const Tensor of_query = row_tensor(sizes_.query_width()), of_key = row_tensor(sizes_.key_width());
  gradients.value = row_tensor(sizes_.key_width());
  tape_.kernel({attention_of(sizes_, Attention::Part::backward)});
  gradients.query = row_tensor(sizes_.query_width());
  gradients.key = row_tensor(sizes_.key_width());
  fusion(tape_, {of_query}, {gradients.query});
  fusion(tape_, {of_key}, {gradients.key});
  return gradients;
}

/// The gradient of the layer's input.
Tensor MaxtextLayer::attention_backward(const Activations& a, const Tensor& gradient) const {
  const std::vector<Tensor> context = at(out).eight_bits() ? operands({out}, {a.context}, true) : std::vector<Tensor>{a.context};
  const Tensor of_context = gradients({out}, context, {gradient});
  const Activations of = attend_backward();
  tape_.operator_name = "projections";
  const Tensor of_norm =
      gradients({query, key, value}, operands({query, key, value}, {a.input, a.statistic}, true), {of.query, of.key, of.value});
  return rms_norm_backward(tape_, of_norm, a.input, a.statistic, gradient);
}

Tensor MaxtextLayer::backward(const Tensor& gradient) {
  const Activations a = again();
  return attention_backward(a, mlp_backward(a, gradient));
}

}  // namespace plimsoll::program
