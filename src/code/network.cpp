#include "code/network.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "code/torch/torch.hpp"
#include "code/transformers/liger.hpp"
#include "plimsoll/error.hpp"
#include "program/frameworks/transformers/training.hpp"
#include "program/modules/adapters/peft.hpp"
#include "program/modules/diffusers/diffusion.hpp"
#include "program/modules/transformers/causal_lm.hpp"

namespace plimsoll::code {

using program::Batch;
using program::Tape;
using program::Tensor;

namespace {

bool is_floating(DType type) { return type == DType::fp32 || type == DType::fp64 || type == DType::bf16 || type == DType::fp16; }

}  // namespace

std::optional<program::WeightLayout> BuiltModule::linear_layout(const ClassObject& type) {
  for (ClassObject* each : type.order) {
    if (each->name == "torch.nn.Linear") return program::WeightLayout::out_in;
    if (each->name != "Conv1D") continue;
    const Value known = interpreter_->imported("transformers.pytorch_utils", interpreter_->symbol("Conv1D"));
    if (known.as<ClassObject>() == each) return program::WeightLayout::in_out;
  }
  return std::nullopt;
}

std::unique_ptr<program::Module> BuiltModule::tree(DType type, Tape& tape) {
  Torch& torch = interpreter_->torch();
  auto root = std::make_unique<program::Module>();
  const auto typed = [type](DType own) { return is_floating(own) && type != DType::fp32 ? type : own; };
  for (const auto& [path, value] : torch.all_modules(module_)) {
    program::Module* module = root.get();
    for (std::size_t start = 0; start < path.size();) {
      const std::size_t dot = std::min(path.find('.', start), path.size());
      module = &module->child(std::string_view(path).substr(start, dot - start), true);
      start = dot + 1;
    }
    const ClassObject& type_of_module = *value.as<InstanceObject>()->type;
    module->type = type_of_module.name.substr(type_of_module.name.rfind('.') + 1);
    module->linear = linear_layout(type_of_module);
    ModuleState& state = torch.state(value);
    for (const auto& [parameter_name, parameter] : state.parameters) {
      if (parameter.is_none()) continue;
      const auto& slot = parameter.as<TensorObject>()->parameter;
      if (slot->name.empty()) {
        slot->name = interpreter_->names().text(parameter_name);
        slot->type = typed(slot->type);
      }
      module->parameters.push_back(slot);
    }
    for (const ModuleState::Buffer& buffer : state.buffers) {
      if (buffer.value.is_none()) continue;
      const Tensor& tensor = torch.tensor(buffer.value);
      module->buffers.push_back(
          {.name = interpreter_->names().text(buffer.name), .sizes = tensor.sizes(),
           .type = typed(tensor.dtype()), .tensor = {}});
    }
  }
  for (program::Module* module : root->all_modules()) module->label = tape.intern(module->path);
  return root;
}

namespace {

/// Where a module's own parameters are: PEFT's layers keep them in the layer that they stand in the place of.
program::Module& holder_of(program::Module& module) {
  if (!module.adapted_parameter.empty()) return program::within_wrappers(module);
  program::Module& copy = program::trained_norm(module);
  program::Module* const base = module.find_child("base_layer");
  return base == nullptr || &copy != &module ? copy : *base;
}

}  // namespace

namespace {

/// The parameter of a module that the text has at a place: that of its name, for a tree that was not made of the text may list a tied one
/// last.
const std::shared_ptr<program::Parameter>& slot_of(program::Module& module, std::size_t place, const std::string& name) {
  auto& slots = module.parameters;
  if (place < slots.size() && slots[place]->name == name) return slots[place];
  const auto named = std::find_if(slots.begin(), slots.end(), [&](const auto& slot) { return slot->name == name; });
  if (named != slots.end()) return *named;
  if (place >= slots.size()) throw Error(ErrorCode::internal, "the module '" + module.path + "' has no parameter '" + name + "'");
  return slots[place];  // a tied one has the name that it got first
}

/// The module at a path of the text, within whatever PEFT has wrapped around it and those that it is in. A tree that was not made of the
/// text (of a family's Model) lacks what has no parameters, which is added.
program::Module& module_at(program::Module& root, std::string_view path, Tape& tape) {
  program::Module* module = &root;
  while (!path.empty()) {
    const std::size_t dot = std::min(path.find('.'), path.size());
    program::Module& around = program::within_wrappers(*module);
    module = around.find_child(path.substr(0, dot));
    if (module == nullptr) {
      module = &around.child(path.substr(0, dot), true);
      module->label = tape.intern(module->path);
    }
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return *module;
}

}  // namespace

void BuiltModule::complete(program::Module& root, Tape& tape) const {
  for (const auto& [path, value] : interpreter_->torch().all_modules(module_)) (void)module_at(root, path, tape);
}

void BuiltModule::bind(program::Module& root, Tape& tape) {
  Torch& torch = interpreter_->torch();
  torch.put_on(tape);
  std::unordered_map<const Object*, const program::Parameter*> bound;
  for (const auto& [path, value] : torch.all_modules(module_)) {
    program::Module* const module = &module_at(root, path, tape);
    ModuleState& state = torch.state(value);
    std::size_t next = 0;
    for (auto& item : state.parameters) {
      if (item.second.is_none()) continue;
      const std::shared_ptr<program::Parameter>& slot = slot_of(holder_of(*module), next++, interpreter_->names().text(item.first));
      // One that was tied may not be any more (FSDP1, PEFT's copies).
      if (bound.emplace(item.second.object(), slot.get()).first->second != slot.get())
        item.second = Value(new TensorObject(interpreter_->heap(), item.second.as<TensorObject>()->tensor));
      item.second.as<TensorObject>()->parameter = slot;
    }
    for (ModuleState::Buffer& buffer : state.buffers)
      if (!buffer.value.is_none()) buffer.value = torch.placeholder();
    state.module = module;
    state.asked = holder_of(*module).read_from_outside;
  }
  // FSDP1 makes buffers anew before the first forward: they are taken behind the wrappers' own hooks.
  root.pre_forward.push_back([this, taken = false](program::Module&, std::vector<Tensor*>&) mutable {
    if (!std::exchange(taken, true)) take_buffers();
  });
}

void BuiltModule::take_buffers() {
  Torch& torch = interpreter_->torch();
  for (const auto& item : torch.all_modules(module_)) {
    ModuleState& state = torch.state(item.second);
    std::size_t next = 0;
    for (ModuleState::Buffer& buffer : state.buffers)
      if (!buffer.value.is_none()) buffer.value = torch.wrap(state.module->buffers.at(next++).tensor);
  }
}

namespace {

/// PreTrainedModel.gradient_checkpointing_enable: what modules that ask for it are given.
class Checkpoints {
 public:
  Checkpoints(BuiltModule& built, const program::RunOptions& options) : i_(built.interpreter()), built_(built), options_(options) {}

  void enable() {
    const Symbol asks = i_.symbol("gradient_checkpointing");
    for (const auto& [path, module] : i_.torch().all_modules(built_.module())) {
      if (!i_.attribute_or(module, asks).is_bound()) continue;
      const bool every = options_.checkpoint_every == 1;
      if (!every && !is_chosen(path)) continue;
      i_.set_attribute(module, asks, Value::boolean(true));
      i_.set_attribute(module, i_.symbol("_gradient_checkpointing_func"), function());
    }
  }

 private:
  /// Of a stack's layers, which are numbered, every k-th.
  bool is_chosen(const std::string& path) const {
    const std::string last = path.substr(path.rfind('.') + 1);
    if (last.empty() || last.find_first_not_of("0123456789") != std::string::npos) return false;
    return (std::stoll(last) + 1) % options_.checkpoint_every == 0;
  }

  Value function() {
    if (made_.is_bound()) return made_;
    const Value checkpoint = i_.library("torch.utils.checkpoint").attributes.at(i_.symbol("checkpoint"));
    Held<WrapperObject> partial(new WrapperObject(i_.heap(), WrapperObject::Kind::partial, checkpoint));
    const bool reentrant = options_.checkpointing == program::RunOptions::Checkpointing::reentrant;
    partial->arguments.keywords.emplace_back(i_.symbol("use_reentrant"), Value::boolean(reentrant));
    return made_ = Value(partial);
  }

  Interpreter& i_;
  BuiltModule& built_;
  const program::RunOptions& options_;
  Value made_;
};

class CodeNetwork final : public program::Network {
 public:
  CodeNetwork(std::unique_ptr<BuiltModule> built, std::shared_ptr<const Recipe> recipe, const program::RunOptions& options,
              program::Module& root, Tape& tape)
      : held_(std::move(recipe)),
        recipe_(*held_),
        inputs_(recipe_.inputs),
        options_(options),
        root_(root),
        tape_(tape),
        own_(std::move(built)),
        built_(*own_) {}

  Tensor loss(const Batch& batch) override {
    if (!std::exchange(bound_, true)) bind();
    Interpreter& interpreter = built_.interpreter();
    interpreter.start_counting();
    const Value output = interpreter.call_from_outside(built_.module(), arguments_of(batch));
    if (predicts()) return interpreter.torch().tensor_of(output.as<SequenceObject>()->items.front(), "what forward predicts");
    if (answers_no_loss(options_)) return answer_in(output);
    const Tensor found = loss_in(output);
    if (!found) no_loss(output);
    hold_others(output, found);
    if (!found.requires_grad()) refuse("what forward returns as its loss takes no gradient: nothing would be trained", "--code");
    return found;
  }

  Tensor criterion(Tensor output) override { return predicts() ? program::prediction_loss(output) : output; }

 private:
  /// Of a prediction diffusers' scripts take the loss themselves.
  bool predicts() const { return recipe_.library == program::CodeLibrary::diffusers; }

  void bind() {
    built_.bind(root_, tape_);
    if (options_.checkpointing != program::RunOptions::Checkpointing::none) enable_checkpoints();
    apply_liger(built_.interpreter(), built_.module(), options_);
    if (answers_no_loss(options_)) {
      Interpreter& i = built_.interpreter();
      (void)i.call_from_outside(i.imported_or_fail("trl.trainer.utils", "check_routers"), {{built_.module()}, {}});
    }
    if (options_.loss == program::RunOptions::Loss::token_scores) fuse_head();
    if (options_.compiled_blocks) compile_layers();
  }

  void enable_checkpoints() {
    if (recipe_.library != program::CodeLibrary::timm) return Checkpoints(built_, options_).enable();
    Interpreter& i = built_.interpreter();
    (void)i.call_from_outside(i.attribute(built_.module(), i.symbol("set_grad_checkpointing")), {});
  }

  /// The layers of transformers' stacks: what its checkpoints know as one (GradientCheckpointingLayer), the outermost of them.
  void compile_layers() {
    Interpreter& i = built_.interpreter();
    const Value type = i.imported_or_fail("transformers.modeling_layers", "GradientCheckpointingLayer");
    std::string last;
    for (const auto& [path, module] : i.torch().all_modules(built_.module())) {
      const auto& order = module.as<InstanceObject>()->type->order;
      const bool is_layer =
          std::any_of(order.begin(), order.end(), [&](const ClassObject* each) { return each == type.as<ClassObject>(); });
      if (!is_layer || (!last.empty() && path.starts_with(last + "."))) continue;
      i.torch().compile(module, {.graphs = options_.graphs, .checkpointed = options_.checkpoints_in_graph()});
      last = path;
    }
    if (last.empty())
      refuse("torch.compile of the blocks of a model without a GradientCheckpointingLayer is not modelled", "compile", "false");
  }

  /// add_fused_lm_head: the instance gets a forward of its own.
  void fuse_head() {
    Interpreter& i = built_.interpreter();
    i.library("plimsoll").attributes[i.symbol("token_scores")] =
        i.native("token_scores", "hidden_states, head, labels", [this](Interpreter& inner, Bound& a) {
          const Tensor hidden = inner.torch().tensor_of(a[0], "hidden_states"), labels = inner.torch().tensor_of(a[2], "labels");
          program::Module* const head = inner.torch().state(a[1]).module;
          tape_.phase(Phase::loss);
          return inner.torch().wrap(program::token_scores(options_, hidden, *head, labels));
        });
    const Value forward = i.imported_or_fail("trl.trainer.utils", "fused_forward");
    i.set_attribute(built_.module(), i.symbol("forward"), Value(new BoundMethodObject(i.heap(), built_.module(), forward)));
  }

  CallArguments arguments_of(const Batch& batch) {
    Interpreter& interpreter = built_.interpreter();
    CallArguments arguments;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (i == 1 && (options_.loss == program::RunOptions::Loss::logits || options_.loss == program::RunOptions::Loss::sequence_scores))
        continue;  // no labels: no loss
      const Tensor& tensor = i == 0 ? batch.input_ids : i == 1 ? batch.labels : batch.conditions[i - 2];
      const bool embedded = i == 0 && inputs_[i].name == "input_ids" && is_floating(tensor.dtype());  // a prompt stands before the text
      arguments.keywords.emplace_back(interpreter.symbol(embedded ? "inputs_embeds" : inputs_[i].name), interpreter.torch().wrap(tensor));
      const Value& value = arguments.keywords.back().second;
      if (inputs_[i].filled)
        (void)interpreter.torch().follow_filled(value, *inputs_[i].filled);
      else if (inputs_[i].type == DType::int64)
        value.as<TensorObject>()->ids_below = recipe_.vocabulary;
    }
    if (predicts()) add_values(arguments, batch.input_ids);
    if (options_.logits_kept > 0 && options_.loss == program::RunOptions::Loss::logits)
      arguments.keywords.emplace_back(interpreter.symbol("logits_to_keep"), Value::integer(options_.logits_kept));
    return arguments;
  }

  /// What diffusers' scripts give forward beside tensors.
  void add_values(CallArguments& arguments, const Tensor& latents) {
    Interpreter& i = built_.interpreter();
    arguments.keywords.emplace_back(i.symbol("return_dict"), Value::boolean(false));
    const Value told =
        i.call_from_outside(i.imported_or_fail("diffusers.models.model_inputs", "values"),
                            {{i.text(i.type_name(built_.module())), Value::integer(latents.size(0)), Value::integer(latents.size(1))}, {}});
    for (const auto& entry : told.as<DictionaryObject>()->entries())
      if (entry.key.is_bound()) arguments.keywords.emplace_back(i.symbol(i.words(entry.key, "arguments")), entry.value);
  }

  /// What a trainer with a loss of its own asks forward for.
  Tensor answer_in(const Value& output) {
    Interpreter& interpreter = built_.interpreter();
    if (options_.loss == program::RunOptions::Loss::token_scores) return interpreter.torch().tensor_of(output, "what the fused head answers");
    tape_.phase(Phase::loss);
    const Value answer = interpreter.attribute_or(output, interpreter.symbol("logits"));
    if (!answer.is_bound() || !Torch::is_tensor(answer)) refuse("what forward returns has no logits: a trainer's own loss reads them", "task");
    Tensor logits = interpreter.torch().tensor(answer);
    hold_others(output, logits);
    return logits;
  }

  /// The output object's other tensors, where somebody holds it.
  void hold_others(const Value& output, const Tensor& found) {
    if (!options_.held) return;
    Torch& torch = built_.interpreter().torch();
    for (const Value& each : torch.tensors_in(output))
      if (torch.tensor(each).impl() != found.impl()) options_.held->push_back(torch.tensor(each));
  }

  /// The loss: a number, one in a tuple or list, `loss` of a dictionary or an object.
  Tensor loss_in(const Value& output) {
    const auto number = [](const Value& value) {
      const auto* tensor = value.as<TensorObject>();
      return tensor != nullptr && tensor->current().rank() == 0 ? tensor->current() : Tensor();
    };
    if (const Tensor own = number(output)) return own;
    if (const auto* sequence = output.as<SequenceObject>()) {
      Tensor found;
      for (const Value& each : sequence->items) {
        const Tensor one = number(each);
        if (one && found)
          fail("forward returns several numbers: which one is the loss is not told", "--code", "return one, or a dict with 'loss'");
        if (one) found = one;
      }
      return found;
    }
    if (auto* dictionary = output.as<DictionaryObject>()) {
      const Value* named = dictionary->find(built_.interpreter().text("loss"));
      return named != nullptr ? number(*named) : Tensor();
    }
    if (output.as<InstanceObject>() != nullptr)
      return number(built_.interpreter().attribute_or(output, built_.interpreter().symbol("loss")));
    return {};
  }

  [[noreturn]] void no_loss(const Value& output) {
    fail("forward returns no loss (a tensor of one number), but a " + built_.interpreter().type_name(output), "--code",
         "give it its targets (--input targets:int64[B,S]), or return the loss");
  }

  const std::shared_ptr<const Recipe> held_;
  const Recipe& recipe_;
  const std::vector<Input>& inputs_;
  const program::RunOptions options_;
  program::Module& root_;
  Tape& tape_;
  std::unique_ptr<BuiltModule> own_;
  BuiltModule& built_;
  bool bound_ = false;
};

/// What the strategy says of a size.
std::int64_t told(Size::Of of, const Strategy& strategy) {
  switch (of) {
    case Size::Of::batch:
      return strategy.micro_batch;
    case Size::Of::sequence:
      return strategy.seq_len;
    case Size::Of::side:
      return program::side_of(strategy.seq_len);
    case Size::Of::target:
      return strategy.tgt_len > 0 ? strategy.tgt_len : strategy.text_tokens;
    default:
      return 1;
  }
}

class CodeSource final : public program::NetworkSource {
 public:
  explicit CodeSource(Recipe recipe) : held_(std::make_shared<const Recipe>(std::move(recipe))), recipe_(*held_), inputs_(recipe_.inputs) {}

  std::unique_ptr<program::Module> modules(DType type, Tape& tape) const override {
    // transformers makes its modules under torch.set_default_dtype(type): what asked for a type of its own keeps it. Others are cast as a
    // whole.
    return recipe_.build({}, type)->tree(recipe_.library == program::CodeLibrary::transformers ? DType::fp32 : type, tape);
  }

  std::unique_ptr<program::Network> network(const program::RunOptions& options, program::Module& root, Tape& tape) const override {
    if (options.hidden_requires_grad) require_input_gradients(root, parts().embeddings);
    const bool reads_text = inputs_.size() == 2 && inputs_[0].name == "input_ids" && inputs_[1].name == "labels" && inputs_[1].sizes == inputs_[0].sizes;
    if (answers_no_loss(options) && !reads_text) refuse("a trainer's own loss of what is given more than a text is not modelled", "task", "lm");
    return network_of(recipe_.build(options, type_of(root)), held_, options, root, tape);
  }

  program::CodeLibrary library() const override { return recipe_.library; }
  program::ModelParts parts() const override { return recipe_.parts ? recipe_.parts() : program::ModelParts{}; }

  /// What its parameters were made in: most of them.
  static DType type_of(program::Module& root) {
    std::map<DType, std::size_t> counts;
    for (const auto& parameter : root.all_parameters())
      if (is_floating(parameter->type)) ++counts[parameter->type];
    const auto most = std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    return most == counts.end() ? DType::fp32 : most->first;
  }

  Batch batch(const Strategy& strategy, Tape& tape) const override {
    Batch made;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      program::Dims sizes;
      for (const Size& size : inputs_[i].sizes) sizes.push_back(size.count * told(size.of, strategy));
      const DType type = inputs_[i].in_parameter_type ? program::hf_parameter_type(strategy) : inputs_[i].type;
      Tensor tensor = tape.empty(sizes, type, Category::input);
      if (i == 0)
        made.input_ids = std::move(tensor);
      else if (i == 1)
        made.labels = std::move(tensor);
      else
        made.conditions.push_back(std::move(tensor));
    }
    return made;
  }

 private:
  const std::shared_ptr<const Recipe> held_;
  const Recipe& recipe_;
  const std::vector<Input>& inputs_;
};

}  // namespace

void require_input_gradients(program::Module& root, const std::vector<std::string>& embeddings) {
  for (const std::string& path : embeddings)
    root.find(path)->post_forward.push_back(
        [](program::Module&, std::vector<Tensor*>& outputs) { outputs.front()->set_requires_grad(true); });
}

std::unique_ptr<program::Network> network_of(std::unique_ptr<BuiltModule> built, std::shared_ptr<const Recipe> recipe,
                                             const program::RunOptions& options, program::Module& root, Tape& tape) {
  return std::make_unique<CodeNetwork>(std::move(built), std::move(recipe), options, root, tape);
}

std::shared_ptr<const ModelSource> make_source(Recipe recipe) { return std::make_shared<CodeSource>(std::move(recipe)); }

}  // namespace plimsoll::code
