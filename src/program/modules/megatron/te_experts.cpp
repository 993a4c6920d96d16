#include "program/modules/megatron/te_experts.hpp"

#include <algorithm>
#include <utility>

#include "program/modules/megatron/te.hpp"
#include "program/op.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

namespace {

/// general_grouped_gemm calls cuBLAS once per expert, and Python keeps quantizers, workspaces and gradients of each: of every product the
/// host does an operator's work per expert. Kernels that compute all experts at once leave it what Python keeps.
void expert_calls(Tape& tape, std::int64_t experts, std::int64_t products) { tape.host(HostWork::operation, experts * products); }

/// split_quantize (pytorch/csrc/extensions/cast.cpp): of each expert's rows the host makes a tensor of its own, views of bytes and scales with its
/// quantizer, and quantizes it by a launch of its own, which the one kernel here stands for.
TeOperand quantize_for_each(MegatronRuntime& runtime, const Tensor& rows, std::int64_t experts, bool transposed) {
  if (runtime.quantization().enabled) expert_calls(runtime.tape(), experts, 1);
  return te_quantize(runtime, rows, transposed);
}

/// One product per group, all of one shape; rows are those of all groups.
void grouped_gemm(MegatronRuntime& runtime, LinearPass pass, std::int64_t rows, const Dims& weight, DType type, std::int64_t groups,
                  Epilogue epilogue = Epilogue::none) {
  runtime.reserve_grouped_workspaces();
  TeProduct product = te_product(runtime, pass, rows, weight, type);
  product.options.epilogue = epilogue;
  grouped_linear_product(runtime.tape(), pass, product.shape, groups, product.options);
}

/// Every row of the longer side is moved.
void move_rows(const Tensor& from, const Tensor& to) {
  gather(Gather::Function::permute, std::max(from.elements(), to.elements()), {&from}, {&to});
}

}  // namespace

namespace {

/// What the backward of grouped products knows of their forward.
struct GroupedCall {
  std::int64_t groups, rows;
  Dims weight;
  DType type;
  bool biased;
  TeInput saved;
};

void grouped_linear_backward(MegatronRuntime& runtime, const GroupedCall& call, BackwardCall& b) {
  constexpr std::int64_t kBackward = 3;  // products and what Python keeps
  expert_calls(b.tape, call.groups, kBackward);
  Tensor input = b.take_saved(0);
  const TeOperand gradient = quantize_for_each(runtime, contiguous(b.grad()), call.groups, true);
  const Tensor wide = b.tape.empty({b.grad().size(0), call.weight[1]}, call.type);
  const auto groups = static_cast<std::size_t>(call.groups);
  {
    std::vector<Tensor> turned;
    for (std::size_t i = 0; i < groups; ++i) turned.push_back(runtime.quantized_weight(b.saved(i + 1), true));
    grouped_gemm(runtime, LinearPass::input_gradient, call.rows, call.weight, call.type, call.groups);
  }
  if (!b.needs(1)) {  // frozen weights
    input.reset();
    b.give(0, wide);
    b.drop_gradients();
    return;
  }
  if (call.saved == TeInput::original) {
    const TeOperand again = quantize_for_each(runtime, input, call.groups, true);
    input = again.kept();
  }
  const bool fused = runtime.fused_weight_gradients();
  std::vector<Tensor> own;
  for (std::size_t i = 0; i < groups && !fused; ++i) own.push_back(b.tape.empty(call.weight, call.type));
  // In 8 bits the biases' gradients come of the kernel that quantizes the output's.
  const bool from_product = call.biased && !runtime.quantization().enabled;
  const auto product = [&runtime, call, from_product] {
    grouped_gemm(runtime, LinearPass::weight_gradient, call.rows, call.weight, call.type, call.groups,
                 from_product ? Epilogue::bias_gradient : Epilogue::none);
  };
  te_run_or_defer(runtime, product, {&input, &gradient.kept()});
  for (std::size_t i = 0; i < groups && call.biased; ++i) b.give(groups + i + 1, b.tape.empty({call.weight[0]}, call.type));
  for (std::size_t i = 0; i < groups; ++i) b.give(i + 1, fused ? runtime.dummy_gradient(b.saved(i + 1)) : own[i]);
  input.reset();
  b.give(0, wide);
  b.drop_gradients();
}

}  // namespace

Tensor te_grouped_linear(MegatronRuntime& runtime, const Tensor& x, const std::vector<Tensor>& weights, const std::vector<Tensor>& biases,
                         TeInput saved) {
  List<const Tensor*> inputs{&x};
  for (const Tensor& weight : weights) inputs.push_back(&weight);
  for (const Tensor& bias : biases) inputs.push_back(&bias);
  PythonFunction op("te_grouped_linear", inputs);
  runtime.called();
  constexpr std::int64_t kForward = 2;  // products and what Python keeps
  expert_calls(op.tape(), static_cast<std::int64_t>(weights.size()), kForward);
  const bool as_it_is = saved == TeInput::original, trained = op.needs(1);
  const TeOperand operand = quantize_for_each(runtime, x, static_cast<std::int64_t>(weights.size()), trained && !as_it_is);
  op.save_if(trained, as_it_is ? x : operand.kept());
  std::vector<Tensor> read;
  for (const Tensor& weight : weights) {
    op.save(weight);
    read.push_back(runtime.quantized_weight(weight, false));
  }
  for (const Tensor& bias : biases) op.save(bias);
  const Tensor& first = weights.front();
  const GroupedCall call{
      static_cast<std::int64_t>(weights.size()), x.size(0), {first.size(0), first.size(1)}, x.dtype(), !biases.empty(), saved};
  Tensor output = op.output({call.rows, call.weight[0]}, call.type);
  grouped_gemm(runtime, LinearPass::forward, call.rows, call.weight, call.type, call.groups, call.biased ? Epilogue::bias : Epilogue::none);
  return op.done(output, [&runtime, &recipe = runtime.quantization(), call](BackwardCall& b) {
    const QuantizationScope scope(runtime, recipe);
    grouped_linear_backward(runtime, call, b);
  });
}

namespace {

/// Rows in 8 bits with their scales, as a product's epilogue leaves them: as they lie, and for the weight's gradient.
TeOperand written_by_product(MegatronRuntime& runtime, std::int64_t rows, std::int64_t columns) {
  const Dims sizes{rows, runtime.quantization().stored(columns)};
  return {runtime.tape().empty(sizes, DType::fp8), runtime.tape().empty(sizes, DType::fp8)};
}

std::vector<const Tensor*> pointers_to(const TeGroupedMlp& experts) {
  std::vector<const Tensor*> all;
  for (const std::vector<Tensor>* list : {&experts.up, &experts.up_biases, &experts.down, &experts.down_biases})
    for (const Tensor& each : *list) all.push_back(&each);
  return all;
}

/// What the backward of the experts needs beside what autograd saved.
struct GroupedMlpShape {
  std::int64_t groups, rows;
  Dims up, down;
  DType type;
};

void grouped_mlp_backward(MegatronRuntime& runtime, const GroupedMlpShape& shape, const TeGroupedMlp& experts, BackwardCall& b) {
  expert_calls(b.tape, shape.groups, 1);
  const Tensor rows = b.take_saved(0), probabilities = b.saved(1), inner = b.take_saved(2), active = b.take_saved(3);
  const TeOperand gradient = te_quantize(runtime, contiguous(b.grad()), true);
  {
    const TeOperand inner_gradient = written_by_product(runtime, shape.rows, shape.up[0]);
    const Tensor shares = b.tape.empty(probabilities.sizes(), probabilities.dtype());
    grouped_gemm(runtime, LinearPass::input_gradient, shape.rows, shape.down, shape.type, shape.groups, Epilogue::gelu_gradient);
    grouped_gemm(runtime, LinearPass::weight_gradient, shape.rows, shape.down, shape.type, shape.groups);
    const Tensor wide = b.tape.empty({shape.rows, shape.up[1]}, shape.type);
    grouped_gemm(runtime, LinearPass::input_gradient, shape.rows, shape.up, shape.type, shape.groups);
    grouped_gemm(runtime, LinearPass::weight_gradient, shape.rows, shape.up, shape.type, shape.groups);
    b.give(0, wide);
    b.give(1, shares);
  }
  std::size_t input = 2;
  for (const std::vector<Tensor>* list : {&experts.up, &experts.up_biases, &experts.down, &experts.down_biases})
    for (const Tensor& each : *list) {
      const bool dummy = runtime.fused_weight_gradients() && each.rank() > 1;
      b.give(input++, dummy ? runtime.dummy_gradient(each) : b.tape.empty(each.sizes(), shape.type));
    }
  b.drop_gradients();
}

}  // namespace

Tensor te_grouped_mlp(MegatronRuntime& runtime, const Tensor& x, const Tensor& probabilities, const TeGroupedMlp& experts) {
  List<const Tensor*> inputs{&x, &probabilities};
  for (const Tensor* each : pointers_to(experts)) inputs.push_back(each);
  PythonFunction op("te_grouped_mlp", inputs);
  runtime.called();
  const Tensor &up = experts.up.front(), &down = experts.down.front();
  const GroupedMlpShape shape{
      static_cast<std::int64_t>(experts.up.size()), x.size(0), {up.size(0), up.size(1)}, {down.size(0), down.size(1)}, x.dtype()};
  expert_calls(op.tape(), shape.groups, 1);
  const TeOperand operand = te_quantize(runtime, x, true);
  Tensor inner = op.tape().empty({shape.rows, shape.up[0]}, shape.type);
  TeOperand active = written_by_product(runtime, shape.rows, shape.down[1]);
  for (const Tensor& weight : experts.up) runtime.quantized_weight(weight, false);
  grouped_gemm(runtime, LinearPass::forward, shape.rows, shape.up, shape.type, shape.groups, Epilogue::gelu);
  Tensor output = op.output({shape.rows, shape.down[0]}, shape.type);
  for (const Tensor& weight : experts.down) runtime.quantized_weight(weight, false);
  grouped_gemm(runtime, LinearPass::forward, shape.rows, shape.down, shape.type, shape.groups);
  op.save(operand.kept());
  op.save(probabilities);
  op.save_output(inner);
  op.save_output(active.kept());
  active.straight.reset();
  return op.done(output, [&runtime, &recipe = runtime.quantization(), shape, experts](BackwardCall& b) {
    const QuantizationScope scope(runtime, recipe);
    grouped_mlp_backward(runtime, shape, experts, b);
  });
}

Tensor te_repadded(const Tensor& x, std::int64_t rows) {
  PythonFunction op("te_fp8_padding", {&x});
  Dims sizes = x.sizes();
  const std::int64_t before = std::exchange(sizes[0], rows);
  Tensor y = op.output(sizes, x.dtype());
  move_rows(x, y);
  return op.done(y, [before](BackwardCall& b) {
    const Tensor whole = contiguous(b.grad());
    Dims back = whole.sizes();
    back[0] = before;
    const Tensor gradient = b.tape.empty(back, whole.dtype());
    move_rows(whole, gradient);
    b.give(0, gradient);
    b.drop_gradients();
  });
}

TePermuted te_permute(const Tensor& tokens, const Tensor& probabilities, std::int64_t rows) {
  constexpr std::int64_t kBlock = 1024;
  PythonFunction op("te_permute", {&tokens, &probabilities});
  Tape& tape = op.tape();
  const std::int64_t count = tokens.size(0), experts = probabilities.size(1);
  TePermuted permuted;
  permuted.places = tape.empty({count, 2 * experts + 1}, DType::int32);
  tape.scratch(4 * experts * ceil_div(count, kBlock));
  permuted.tokens = op.output({rows, tokens.size(1)}, tokens.dtype());
  permuted.probabilities = op.output({rows}, probabilities.dtype());
  move_rows(tokens, permuted.tokens);
  op.save_output(permuted.places);
  op.finish({&permuted.tokens, &permuted.probabilities}, [count, experts, width = tokens.size(1)](BackwardCall& b) {
    const Tensor gradient = b.tape.empty({count, width}, b.grad(0).dtype());
    if (b.grad(1)) b.give(1, b.tape.empty({count, experts}, b.grad(1).dtype()));
    move_rows(b.grad(0), gradient);
    b.give(0, gradient);
    b.drop_gradients();
  });
  return permuted;
}

Tensor te_unpermute(const Tensor& rows, const Tensor& places) {
  PythonFunction op("te_unpermute", {&rows});
  op.save(places);
  Tensor tokens = op.output({places.size(0), rows.size(1)}, rows.dtype());
  move_rows(rows, tokens);
  return op.done(tokens, [sizes = rows.sizes()](BackwardCall& b) {
    const Tensor gradient = b.tape.empty(sizes, b.grad().dtype());
    move_rows(b.grad(), gradient);
    b.give(0, gradient);
    b.drop_gradients();
  });
}

TeSorted te_sort_chunks(const Tensor& rows, const Tensor& probabilities) {
  PythonFunction op("te_sort_chunks", {&rows, &probabilities});
  const Tensor places = op.output({rows.size(0)}, DType::int32);
  TeSorted sorted;
  sorted.rows = op.output(rows.sizes(), rows.dtype());
  if (probabilities) sorted.probabilities = op.output(probabilities.sizes(), probabilities.dtype());
  move_rows(rows, sorted.rows);
  op.save_output(places);
  const auto backward = [](BackwardCall& b) {
    const Tensor gradient = empty_like(b.grad(0));
    move_rows(b.grad(0), gradient);
    if (b.needs(1) && b.grad(1)) b.give(1, empty_like(b.grad(1)));
    b.give(0, gradient);
    b.drop_gradients();
  };
  if (probabilities) {
    op.finish({&sorted.rows, &sorted.probabilities}, backward);
  } else {
    op.finish({&sorted.rows}, [](BackwardCall& b) {
      const Tensor gradient = empty_like(b.grad());
      move_rows(b.grad(), gradient);
      b.give(0, gradient);
      b.drop_gradients();
    });
  }
  return sorted;
}

Tensor te_latent_rotary_query(const Tensor& query, const Tensor& table) {
  PythonFunction op("te_latent_rotary", {&query});
  op.save(table);
  in_place(query, {&query});
  Tensor turned = query.detach();
  return op.done(turned, [](BackwardCall& b) {
    const Tensor gradient = contiguous(b.grad());
    in_place(gradient, {&gradient});
    b.give(0, gradient);
  });
}

TeLatent te_latent_rotary_key_value(const Tensor& kv, const Tensor& rotary_key, std::int64_t value_width, const Tensor& table) {
  PythonFunction op("te_latent_rotary", {&kv, &rotary_key});
  op.save(table);
  const auto with_width = [&](std::int64_t width) { return Dims{kv.size(0), kv.size(1), kv.size(2), width}; };
  const std::int64_t rope = rotary_key.size(-1);
  TeLatent latent;
  latent.key = op.output(with_width(kv.size(3) - value_width + rope), kv.dtype());
  latent.value = op.output(with_width(value_width), kv.dtype());
  row_wise(RowWise::Function::rope, kv.elements() / kv.size(-1), kv.size(-1), {&kv, &rotary_key, &table}, {&latent.key, &latent.value});
  op.finish({&latent.key, &latent.value}, [sizes = kv.sizes(), rope](BackwardCall& b) {
    const Tensor key = contiguous(b.grad(0)), value = contiguous(b.grad(1));
    const Tensor whole = b.tape.empty(sizes, key.dtype()), shared = b.tape.empty({sizes[0], sizes[1], 1, rope}, key.dtype());
    row_wise(RowWise::Function::rope, whole.elements() / whole.size(-1), whole.size(-1), {&key, &value}, {&whole, &shared});
    b.give(0, whole);
    b.give(1, shared);
    b.drop_gradients();
  });
  return latent;
}

}  // namespace plimsoll::program
