#include "program/frameworks/wrap_units.hpp"

#include <algorithm>

#include "plimsoll/error.hpp"
#include "program/modules/network_source.hpp"

namespace plimsoll::program {

namespace {

bool is_class_name(const std::string& entry) {
  return entry.find_first_of(".*+") == std::string::npos && std::isupper(static_cast<unsigned char>(entry[0]));
}

/// "LlamaForCausalLM" → "Llama": what the class names of an architecture's modules begin with.
std::string class_prefix(const std::string& architecture) {
  for (const char* head : {"For", "LMHeadModel", "Model"}) {
    const std::size_t at = architecture.find(head);
    if (at != std::string::npos && at > 0) return architecture.substr(0, at);
  }
  return architecture;
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Whether a module's path ends in `pattern`, component by component ("layers.*" matches "model.layers.3").
bool matches(const std::string& path, const std::string& pattern) {
  std::size_t p = path.size(), q = pattern.size();
  while (q > 0) {
    const std::size_t from_q = pattern.rfind('.', q - 1) == std::string::npos ? 0 : pattern.rfind('.', q - 1) + 1;
    if (p == 0) return false;
    const std::size_t from_p = path.rfind('.', p - 1) == std::string::npos ? 0 : path.rfind('.', p - 1) + 1;
    const std::string want = pattern.substr(from_q, q - from_q);
    if (want != "*" && want != path.substr(from_p, p - from_p)) return false;
    q = from_q == 0 ? 0 : from_q - 1;
    p = from_p == 0 ? 0 : from_p - 1;
  }
  return true;
}

std::vector<Module*> modules_matching(Module& root, const std::string& pattern) {
  std::vector<Module*> found;
  for (Module* module : root.all_modules())
    if (!module->path.empty() && matches(module->path, pattern)) found.push_back(module);
  if (found.empty()) fail("the wrap list names '" + pattern + "', which no module of the model is called", "fsdp.units");
  return found;
}

/// albert: a later run of a layer whose parameters are an earlier one's, which has no module of its own.
bool runs_again(const Block& block) {
  return std::all_of(block.operators.begin(), block.operators.end(), [](const Operator& op) {
    return std::all_of(op.parameters.begin(), op.parameters.end(), [](const ParameterTensor& tensor) { return !tensor.tied_to.empty(); });
  });
}

/// "LlamaDecoderLayer" of a LlamaForCausalLM, "GPT2Block" of a GPT2LMHeadModel; distilbert calls its layers otherwise.
bool is_layer_class(const std::string& entry, const Model& model) {
  if (model.model_type == "distilbert") return entry == "TransformerBlock";
  if (model.model_type == "llava") return entry == "LlamaDecoderLayer";
  return entry.rfind(class_prefix(model.architecture), 0) == 0 && (ends_with(entry, "Layer") || ends_with(entry, "Block"));
}

/// The repeated layers that are of the class: an encoder-decoder's are of two, BartEncoderLayer and BartDecoderLayer.
std::vector<Module*> layers_of_class(const Model& model, Module& root, const std::string& entry) {
  std::vector<Module*> layers;
  for (const Block* block : model.registered_blocks()) {
    if (block->role != Block::Role::decoder && block->role != Block::Role::encoder) continue;
    if (ends_with(entry, "EncoderLayer") && block->role == Block::Role::decoder) continue;
    if (ends_with(entry, "DecoderLayer") && block->role == Block::Role::encoder) continue;
    if (runs_again(*block)) continue;
    if (block->stream == Block::Stream::second && model.task == Model::Task::causal_lm) continue;  // a tower beside the language model
    for (std::int64_t i = 0; i < block->repeat; ++i) {
      const std::string path = block->name + "." + std::to_string(block->first + i);
      Module* module = root.find(path);
      if (!module) throw Error(ErrorCode::internal, "block '" + path + "' has no module");
      layers.push_back(module);
    }
  }
  return layers;
}

/// An nn.ModuleList: nothing of its own but children that are numbered.
bool is_list(const Module& module) {
  return module.parameters.empty() && module.buffers.empty() && !module.children.empty() &&
         std::all_of(module.children.begin(), module.children.end(), [](const std::unique_ptr<Module>& child) {
           return child->name().find_first_not_of("0123456789") == std::string_view::npos;
         });
}

/// Adds the units at and below a module; answers how many of its parameters they hold.
std::int64_t wrap_by_size(Module& module, std::int64_t least, bool is_root, std::vector<Module*>& units) {
  std::int64_t all = 0, wrapped = 0;
  for (const auto& parameter : module.all_parameters()) all += parameter->sizes.product();
  if (all < least) return 0;
  for (const auto& child : module.children) wrapped += wrap_by_size(*child, least, false, units);
  if (is_root || all - wrapped < least || is_list(module)) return wrapped;
  units.push_back(&module);
  return all;
}

}  // namespace

std::vector<Module*> modules_of_class(Module& root, const std::string& name) {
  std::vector<Module*> found;
  for (Module* module : root.all_modules())
    if (module->type == name) found.push_back(module);
  return found;
}

std::vector<Module*> units_by_size(Module& root, std::int64_t least) {
  std::vector<Module*> units;
  wrap_by_size(root, least, true, units);
  return units;
}

namespace {

/// Modules of the outermost lists of a model that is told by its own code: its blocks.
void add_listed(Module& module, std::vector<Module*>& found) {
  for (const auto& child : module.children) {
    if (module.type == "ModuleList" && !child->all_parameters().empty())
      found.push_back(child.get());
    else
      add_listed(*child, found);
  }
}

std::vector<Module*> listed_modules(Module& root) {
  std::vector<Module*> found;
  add_listed(root, found);
  if (found.empty())
    refuse("the code has no ModuleList, whose modules would be FSDP's units", "fsdp.units",
           "the class of its blocks, a path such as 'blocks.*', or none");
  return found;
}

}  // namespace

std::vector<Module*> layer_modules(const Model& model, Module& root) {
  return model.source ? listed_modules(root) : layers_of_class(model, root, {});
}

std::vector<std::vector<Module*>> wrap_units(const Model& model, Module& root, const std::vector<std::string>& entries) {
  std::vector<std::vector<Module*>> units;
  const auto one_each = [&](const std::vector<Module*>& modules) {
    for (Module* module : modules) units.push_back({module});
  };
  if (entries.size() == 1 && entries.front() == "none") return units;
  if (entries.empty()) one_each(layer_modules(model, root));
  for (const std::string& entry : entries) {
    if (entry.empty()) fail("an entry of the wrap list is empty", "fsdp.units");
    if (std::vector<Module*> of_class = modules_of_class(root, entry); !of_class.empty()) {
      one_each(of_class);
    } else if (is_class_name(entry) && model.source) {
      fail("could not find the layer class " + entry + " in the model", "fsdp.units", "a class of the model's modules, or a path such as 'layers.*'");
    } else if (is_class_name(entry)) {
      if (!is_layer_class(entry, model))
        refuse("units of class '" + entry + "' are not modelled", "fsdp.units",
               "the class of the repeated layers, or a path such as 'layers.*'");
      one_each(layers_of_class(model, root, entry));
    } else if (entry.find('+') != std::string::npos) {
      std::vector<Module*> together;
      for (std::size_t start = 0; start <= entry.size();) {
        const std::size_t plus = std::min(entry.find('+', start), entry.size());
        for (Module* module : modules_matching(root, entry.substr(start, plus - start))) together.push_back(module);
        start = plus + 1;
      }
      units.push_back(std::move(together));
    } else {
      one_each(modules_matching(root, entry));
    }
  }
  return units;
}

namespace {

bool lies_within(const std::vector<Module*>& inner, const std::vector<Module*>& outer) {
  return std::any_of(outer.begin(), outer.end(), [&](const Module* module) { return inner.front()->path.starts_with(module->path + "."); });
}

/// Units are wrapped before those around them.
void put_inner_first(std::vector<std::vector<Module*>>& units) {
  for (std::size_t at = 0; at < units.size(); ++at)
    for (std::size_t later = at + 1; later < units.size(); ++later)
      if (lies_within(units[later], units[at])) {
        std::rotate(units.begin() + static_cast<std::ptrdiff_t>(at), units.begin() + static_cast<std::ptrdiff_t>(later),
                    units.begin() + static_cast<std::ptrdiff_t>(later) + 1);
        later = at;  // the one that stands here now
      }
}

}  // namespace

std::vector<Module*> unsplit_modules(const Model& model, Module& root) {
  const NetworkSource* const source = network_source(model);
  if (!source) return layer_modules(model, root);
  const std::vector<std::string> classes = source->parts().layer_classes;
  if (classes.empty())
    refuse(model.architecture + " names no classes that are not split, which would be units", "fsdp.units", "the class of its layers");
  std::vector<Module*> modules;
  for (const std::vector<Module*>& unit : wrap_units(model, root, classes)) modules.push_back(unit.front());
  return modules;
}

std::vector<std::vector<Module*>> prepared_units(const Model& model, Module& root, const Strategy& strategy) {
  if (strategy.framework != "accelerate" || !strategy.fsdp.units.empty()) return wrap_units(model, root, strategy.fsdp.units);
  std::vector<std::vector<Module*>> units;
  for (Module* module : unsplit_modules(model, root)) units.push_back({module});
  put_inner_first(units);
  return units;
}

}  // namespace plimsoll::program
