#include "program/modules/adapters/axolotl.hpp"

#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "plimsoll/error.hpp"
#include "program/kernels.hpp"
#include "program/modules/adapters/bitsandbytes.hpp"
#include "program/modules/layers.hpp"
#include "program/modules/transformers/rotary_style.hpp"
#include "program/ops/ops.hpp"
#include "program/python_function.hpp"

namespace plimsoll::program {

AxolotlKernels AxolotlKernels::of(const Strategy& strategy) {
  const Releases::Entry* said = strategy.releases.find(Package::axolotl);
  return {.in_place = said && !said->release.since(0, 18)};
}

namespace {

/// What get_lora_parameters reads of an adapted linear.
struct Adapted {
  Module* base;
  Module *a, *b;
  std::int64_t in, out;

  const Tensor& down() const { return a->tensor("weight"); }
  const Tensor& up() const { return b->tensor("weight"); }
};

Adapted adapted(Module& linear) {
  Module &a = linear.child("lora_A").child("default"), &b = linear.child("lora_B").child("default");
  return {&linear.child("base_layer"), &a, &b, a.find_parameter("weight")->sizes[1], b.find_parameter("weight")->sizes[0]};
}

/// a · b in a new tensor.
Tensor product(Tape& tape, const Matrix& a, const Matrix& b) {
  Tensor y = tape.empty({a.rows, b.columns}, a.type);
  gemm(tape, a, b, matrix(y));
  return y;
}

void add_product(Tape& tape, const Tensor& onto, const Matrix& a, const Matrix& b) {
  gemm(tape, a, b, matrix(onto), {.accumulates = true});
}

/// The base layer's weight [out, in], which a 4-bit one is dequantised to.
Tensor whole_weight(const Adapted& linear, Tape& tape) {
  if (is_4bit(*linear.base)) return dequantized_4bit(*linear.base, {linear.out, linear.in}, tape);
  return linear.base->tensor("weight").detach();
}

/// out += s · x A B, for A [in, r] and B [r, out] of the input's type. Before 0.18 the scaled input and the update are tensors.
void add_update(Tape& tape, const Tensor& onto, const Tensor& x, const Matrix& a, const Matrix& b, const AxolotlKernels& kernels) {
  if (!kernels.in_place) {
    const Tensor low = product(tape, matrix(x), a);
    return add_product(tape, onto, matrix(low), b);
  }
  Tensor update = elementwise(tape, {&x}, x.dtype());
  update = product(tape, matrix(update), a);
  update = product(tape, matrix(update), b);
  in_place(onto, {&onto, &update});
}

/// matmul_lora of x [tokens, in]: x W + s · dropped A B + bias.
Tensor matmul_lora(Tape& tape, const Adapted& linear, const Tensor& x, const Tensor& dropped, const AxolotlKernels& kernels) {
  Tensor y;
  {
    const Tensor weight = whole_weight(linear, tape);
    if (weight.dtype() != x.dtype() || size_of(x.dtype()) != 2)
      fail("axolotl's kernels for adapters multiply in place, in 16 bits: the input is " + std::string(name_of(x.dtype())) +
               " and the weight " + std::string(name_of(weight.dtype())),
           "lora.mlp_kernel", "param_dtype bf16, or lora.mlp_kernel, lora.qkv_kernel and lora.o_kernel false");
    y = product(tape, matrix(x), matrix(weight).t());
  }
  {
    const Tensor a = to(linear.down().detach(), x.dtype()), b = to(linear.up().detach(), x.dtype());
    add_update(tape, y, dropped ? dropped : x, matrix(a).t(), matrix(b).t(), kernels);
  }
  if (const Tensor& bias = linear.base->tensor("bias")) in_place(y, {&y, &bias});
  return y;
}

/// Gradients of a linear's factors, [in, r] and [r, out] transposed, and what both they and the input's need: gradient · B.
struct FactorGradients {
  Tensor low, of_a, of_b;
};
FactorGradients factor_gradients(Tape& tape, const Tensor& gradient, const Tensor& x, const Tensor& a, const Tensor& b) {
  FactorGradients made;
  made.low = product(tape, matrix(gradient), matrix(b));
  made.of_a = transpose(tape.empty(a.sizes(), a.dtype()), 0, 1);
  made.of_b = transpose(tape.empty(b.sizes(), b.dtype()), 0, 1);
  gemm(tape, matrix(x).t(), matrix(made.low), matrix(made.of_a));
  const Tensor turned = product(tape, matrix(a), matrix(x).t());
  gemm(tape, matrix(turned), matrix(gradient), matrix(made.of_b));
  return made;
}

Tensor rows_of(const Tensor& x) { return view(x, {-1, x.size(-1)}); }

/// The factors in the input's type, which forward makes anew for the backward.
void save_factors(PythonFunction& op, const std::vector<Adapted>& linears, DType type) {
  for (const Adapted& linear : linears) {
    op.save(to(linear.down().detach(), type));
    op.save(to(linear.up().detach(), type));
  }
}

/// The dropout in front of the first linear's adapter, whose mask all linears of the same input share; none where it is nn.Identity.
Tensor dropped_input(Module& linear, const Tensor& x) {
  return linear.adapter_dropout > 0 ? dropout(x, linear.adapter_dropout) : Tensor();
}

List<const Tensor*> inputs_of(const Tensor& x, const Tensor& dropped, const std::vector<Adapted>& linears) {
  List<const Tensor*> inputs;
  inputs.push_back(&x);
  inputs.push_back(&dropped);
  for (const Adapted& linear : linears) {
    inputs.push_back(&linear.down());
    inputs.push_back(&linear.up());
  }
  return inputs;
}

/// Where saved tensors and inputs of a linear's factors stand, behind x and its dropped copy.
constexpr std::size_t place_of(std::size_t linear) { return 2 + 2 * linear; }

void give_factors(BackwardCall& call, std::size_t linear, FactorGradients& made) {
  call.give(place_of(linear), transpose(std::exchange(made.of_a, {}), 0, 1));
  call.give(place_of(linear) + 1, transpose(std::exchange(made.of_b, {}), 0, 1));
}

/// How a function sums the gradient of its input.
struct InputRules {
  bool over_input = false;    ///< in the saved input's place
  bool sums_apart = false;    ///< further products are made before they are added
  bool scales_alone = false;  ///< the dropped input's is one product, scaled; else products into zeros
};

/// The gradient of linears' shared input: through the base weights, then through the adapters, of the dropped input in a tensor of its own.
class InputGradient {
 public:
  InputGradient(BackwardCall& call, InputRules rules, bool has_dropout)
      : call_(call), tape_(call.tape), rules_(rules), has_dropout_(has_dropout) {}

  void add_base(const Adapted& linear, const Tensor& gradient) {
    const Tensor weight = whole_weight(linear, tape_);
    if (sum_ && rules_.sums_apart) {
      const Tensor made = product(tape_, matrix(gradient), matrix(weight));
      return in_place(sum_, {&sum_, &made});
    }
    if (sum_) return add_product(tape_, sum_, matrix(gradient), matrix(weight));
    sum_ = rules_.over_input ? rows_of(call_.saved(0)) : tape_.empty({gradient.size(0), linear.in}, gradient.dtype());
    gemm(tape_, matrix(gradient), matrix(weight), matrix(sum_));
  }
  void add_adapter(const Tensor& low, const Tensor& a) {
    if (has_dropout_ && rules_.scales_alone) {
      const Tensor made = product(tape_, matrix(low), matrix(a));
      dropped_ = elementwise(tape_, {&made}, made.dtype());
      return;
    }
    if (has_dropout_ && !dropped_) dropped_ = zeros(tape_, sum_.sizes(), sum_.dtype());
    add_product(tape_, has_dropout_ ? dropped_ : sum_, matrix(low), matrix(a));
  }
  void give() {
    const Dims sizes = call_.saved(0).sizes();
    call_.give(0, view(std::exchange(sum_, {}), sizes));
    if (dropped_) call_.give(1, view(std::exchange(dropped_, {}), sizes));
  }

 private:
  BackwardCall& call_;
  Tape& tape_;
  InputRules rules_;
  bool has_dropout_;
  Tensor sum_, dropped_;
};

// ---- LoRA_QKV, LoRA_O ------------------------------------------------------------------------------------------------

/// Linears of one input: attention's three, or the output's one.
std::vector<Tensor> lora_projections(const char* name, const std::vector<Module*>& modules, const Tensor& x, const AxolotlKernels& kernels) {
  std::vector<Adapted> linears;
  for (Module* module : modules) linears.push_back(adapted(*module));
  const Tensor dropped = dropped_input(*modules.front(), x);
  PythonFunction op(name, inputs_of(x, dropped, linears));
  Tape& tape = op.tape();
  std::vector<Tensor> outputs;
  {
    const GradMode no_grad(tape, false);
    const Tensor rows = rows_of(x.detach()), dropped_rows = dropped ? rows_of(dropped.detach()) : Tensor();
    for (const Adapted& linear : linears)
      outputs.push_back(view(matmul_lora(tape, linear, rows, dropped_rows, kernels), {x.size(0), x.size(1), linear.out}));
    op.save(x);
    op.save(dropped ? dropped : x);
    save_factors(op, linears, x.dtype());
  }
  op.finish_all(outputs, [linears, kernels, has_dropout = dropped.defined()](BackwardCall& call) {
    const Tensor rows = rows_of(call.saved(1));
    std::vector<Tensor> gradients;
    for (std::size_t i = 0; i < linears.size(); ++i) gradients.push_back(reshape(call.grad(i), {-1, call.grad(i).size(-1)}));
    std::vector<FactorGradients> made;
    for (std::size_t i = 0; i < linears.size(); ++i)
      made.push_back(factor_gradients(call.tape, gradients[i], rows, call.saved(place_of(i)), call.saved(place_of(i) + 1)));
    const bool output = linears.size() == 1;
    InputGradient input(call, {.over_input = kernels.in_place && !output, .scales_alone = output}, has_dropout);
    for (std::size_t i = 0; i < linears.size(); ++i) input.add_base(linears[i], gradients[i]);
    for (std::size_t i = 0; i < linears.size(); ++i) input.add_adapter(made[i].low, call.saved(place_of(i)));
    input.give();
    for (std::size_t i = 0; i < linears.size(); ++i) give_factors(call, i, made[i]);
  });
  return outputs;
}

// ---- LoRA_MLP --------------------------------------------------------------------------------------------------------

constexpr std::size_t kGate = 0, kUp = 1, kDown = 2;
constexpr std::size_t kSavedGate = 2, kSavedUp = 3, kSavedFactors = 4;  // behind x and its dropped copy

/// LoRA_MLP.backward: the activation's kernel leaves the hidden states and both gradients where the incoming gradient, gate and up lay.
void mlp_backward(BackwardCall& call, const std::vector<Adapted>& linears, const AxolotlKernels& kernels, bool has_dropout) {
  Tape& tape = call.tape;
  const auto a = [&](std::size_t i) { return call.saved(kSavedFactors + 2 * i); };
  const auto b = [&](std::size_t i) { return call.saved(kSavedFactors + 2 * i + 1); };
  const Tensor gradient = rows_of(call.grad()), rows = rows_of(call.saved(1));
  const Tensor of_gate = rows_of(call.saved(kSavedGate)), of_up = rows_of(call.saved(kSavedUp));
  Tensor hidden;
  {
    const Tensor weight = whole_weight(linears[kDown], tape);
    hidden = product(tape, matrix(gradient), matrix(weight));
  }
  add_update(tape, hidden, gradient, matrix(b(kDown)), matrix(a(kDown)), kernels);
  pointwise(Pointwise::Form::fused, {&hidden, &of_gate, &of_up}, {&hidden, &of_gate, &of_up});
  FactorGradients down = factor_gradients(tape, gradient, hidden, a(kDown), b(kDown));
  FactorGradients up = factor_gradients(tape, of_up, rows, a(kUp), b(kUp));
  FactorGradients gate = factor_gradients(tape, of_gate, rows, a(kGate), b(kGate));
  if (call.needs(0)) {
    InputGradient input(call, {.over_input = kernels.in_place, .sums_apart = kernels.in_place}, has_dropout);
    input.add_base(linears[kUp], of_up);
    input.add_base(linears[kGate], of_gate);
    input.add_adapter(up.low, a(kUp));
    input.add_adapter(gate.low, a(kGate));
    input.give();
  }
  give_factors(call, kGate, gate);
  give_factors(call, kUp, up);
  give_factors(call, kDown, down);
}

Tensor lora_mlp(Module& mlp, const Tensor& x, const AxolotlKernels& kernels) {
  const std::vector<Adapted> linears{adapted(mlp.child("gate_proj")), adapted(mlp.child("up_proj")), adapted(mlp.child("down_proj"))};
  const Tensor dropped = dropped_input(mlp.child("gate_proj"), x);
  PythonFunction op("LoRA_MLP", inputs_of(x, dropped, linears));
  Tape& tape = op.tape();
  Tensor y;
  {
    const GradMode no_grad(tape, false);
    const Tensor rows = rows_of(x.detach()), dropped_rows = dropped ? rows_of(dropped.detach()) : Tensor();
    const Tensor gate = matmul_lora(tape, linears[kGate], rows, dropped_rows, kernels);
    const Tensor up = matmul_lora(tape, linears[kUp], rows, dropped_rows, kernels);
    const Tensor hidden = tape.empty(gate.sizes(), gate.dtype());
    pointwise(Pointwise::Form::fused, {&gate, &up}, {&hidden});
    y = matmul_lora(tape, linears[kDown], hidden, {}, kernels);
    op.save(x);
    op.save(dropped ? dropped : x);
    op.save(gate);
    op.save(up);
    save_factors(op, linears, x.dtype());
    y = view(y, {x.size(0), x.size(1), linears[kDown].out});
  }
  return op.done(y, [linears, kernels, has_dropout = dropped.defined()](BackwardCall& call) {
    mlp_backward(call, linears, kernels, has_dropout);
  });
}

// ---- patches ---------------------------------------------------------------------------------------------------------

/// Model types whose attention holds the lines that axolotl rewrites (QKV_PATCHES, ORIGINAL_O_CODE), in transformers 5.23.
bool has_rewritten_attention(const std::string& type) {
  static const std::unordered_set<std::string> types = {
      "arcee",   "cohere2",   "dots1",   "ernie4_5", "exaone4",   "gemma", "gemma2",     "gemma3_text", "gemma3",   "glm",     "glm4",
      "gpt_oss", "granite",   "helium",  "granitemoe", "hunyuan_v1_dense", "llama", "ministral",  "ministral3",  "mistral",  "mixtral", "nemotron",
      "qwen2",   "qwen2_moe", "qwen3",   "qwen3_moe", "seed_oss", "smollm3", "starcoder2", "phimoe"};
  return types.count(type) > 0;
}

/// Model types whose attention has none of those lines: axolotl looks for them and raises.
bool has_no_such_lines(const std::string& type) {
  static const std::unordered_set<std::string> types = {
      "bloom", "codegen",     "cohere",  "deepseek_v2", "deepseek_v3", "falcon",   "flex_olmo", "glm4_moe", "glm4_moe_lite",
      "gpt2",  "gpt_bigcode", "gpt_neo", "gpt_neox",    "gptj",        "mpt",      "olmo",      "olmo2",    "olmo3",
      "olmoe", "opt",         "phi",     "phi3",        "minimax_m2",  "stablelm", "youtu"};
  return types.count(type) > 0;
}

bool is_adapted(Module& linear) { return linear.find_child("lora_A") != nullptr; }

bool all_adapted(Module& parent, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    Module* linear = parent.find_child(name);
    if (!linear || !is_adapted(*linear)) return false;
  }
  return true;
}

void patch_attention(Module& attention, const Lora& lora, const AxolotlKernels& kernels, Tape& tape) {
  Module &q = attention.child("q_proj"), &k = attention.child("k_proj"), &v = attention.child("v_proj"), &o = attention.child("o_proj");
  const bool fused = lora.qkv_kernel && all_adapted(attention, {"q_proj", "k_proj", "v_proj"});
  attention.projections = [&q, &k, &v, &tape, fused, kernels](const Tensor& x) -> std::array<Tensor, 3> {
    if (!fused) return {Linear(q, tape)(x), Linear(k, tape)(x), Linear(v, tape)(x)};
    std::vector<Tensor> made = lora_projections("LoRA_QKV", {&q, &k, &v}, x, kernels);
    return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
  };
  if (lora.o_kernel && is_adapted(o))
    o.replacement = [&o, kernels](const Tensor& x) { return lora_projections("LoRA_O", {&o}, x, kernels).front(); };
}

}  // namespace

void patch_adapters(const std::vector<Module*>& layers, const Model& model, const Strategy& strategy, Tape& tape) {
  const Lora& lora = *strategy.lora;
  const char* const key = "lora.qkv_kernel";
  const char* const without = "lora.mlp_kernel, lora.qkv_kernel and lora.o_kernel false";
  if (lora.dora) refuse("axolotl's kernels for adapters with DoRA are not modelled", key, without);
  if (strategy.base_weights == BaseWeights::int8) refuse("axolotl's kernels read no 8-bit weights of bitsandbytes", key, without);
  if (strategy.data_parallel == DataParallel::fsdp1) fail("axolotl's kernels for adapters do not go with FSDP1", key, without);
  if (strategy.data_parallel == DataParallel::fsdp2 || strategy.data_parallel == DataParallel::zero3)
    refuse("axolotl's kernels for adapters are not modelled for sharded weights, which they read outside of their modules' calls", key, without);
  const AxolotlKernels kernels = AxolotlKernels::of(strategy);
  const bool rewrites = lora.qkv_kernel || lora.o_kernel;
  if (rewrites && has_no_such_lines(model.model_type))
    fail("axolotl's kernels look for lines of attention that " + model.model_type + "'s does not have: axolotl raises AssertionError", key,
         "lora.qkv_kernel and lora.o_kernel false");
  if (rewrites && !has_rewritten_attention(rotary::text_type(model.model_type)))
    refuse("axolotl's kernels in the attention of " + model.model_type + " are not modelled", key, "lora.qkv_kernel and lora.o_kernel false");
  for (Module* layer : layers) {
    Module* attention = layer->find_child("self_attn");
    if (rewrites && attention && attention->find_child("q_proj")) patch_attention(*attention, lora, kernels, tape);
    Module* mlp = layer->find_child("mlp");
    if (lora.mlp_kernel && mlp && all_adapted(*mlp, {"gate_proj", "up_proj", "down_proj"}))
      mlp->replacement = [mlp, kernels](const Tensor& x) { return lora_mlp(*mlp, x, kernels); };
  }
}

}  // namespace plimsoll::program
