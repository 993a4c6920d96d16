#include "code/transformers/mechanisms.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "code/library_texts.hpp"
#include "code/torch/torch.hpp"
#include "code/transformers/experts.hpp"
#include "code/transformers/liger.hpp"
#include "plimsoll/error.hpp"
#include "program/modules/transformers/causal_lm.hpp"
#include "program/ops/choosing.hpp"

namespace plimsoll::code {

using program::RunOptions;
using program::Tensor;

namespace {

// ---- tied weights (PreTrainedModel.get_expanded_tied_weights_keys, tie_weights) ---------------------------------------

constexpr std::size_t kMostPattern = 300;

/// Whether a name begins with what a pattern of _tied_weights_keys means: names, and of regular expressions "\d+", "\.", "(?![0])".
bool begins_with(std::string_view name, std::string_view pattern) {
  while (!pattern.empty()) {
    if (pattern.starts_with("(?![0])")) {
      if (name.starts_with('0')) return false;
      pattern.remove_prefix(7);
    } else if (pattern.starts_with("\\d+")) {
      const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
      if (digits == 0) return false;
      name.remove_prefix(digits);
      pattern.remove_prefix(3);
    } else if (pattern == "$") {
      return name.empty();
    } else {
      if (pattern.starts_with("\\.")) pattern.remove_prefix(1);
      if (name.empty() || name.front() != pattern.front()) return false;
      name.remove_prefix(1);
      pattern.remove_prefix(1);
    }
  }
  return true;
}

/// A parameter's place below a module.
struct Slot {
  std::string path;
  Value module;
  Symbol name;
};

std::vector<Slot> slots_of(Interpreter& i, const Value& model) {
  std::vector<Slot> slots;
  for (const auto& [path, module] : i.torch().all_modules(model))
    for (const auto& item : i.torch().state(module).parameters)
      if (!item.second.is_none()) slots.push_back({(path.empty() ? "" : path + ".") + i.names().text(item.first), module, item.first});
  std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) { return a.path < b.path; });
  return slots;
}

Value tie_weights(Interpreter& i, Bound& a) {
  const auto* keys = a[1].as<DictionaryObject>();
  if (keys == nullptr) i.unknown("_tied_weights_keys that are a " + i.type_name(a[1]), "a dict of target and source");
  const std::vector<Slot> slots = slots_of(i, a[0]);
  const auto matching = [&](const std::string& pattern) {
    if (pattern.size() > kMostPattern) i.unknown("a pattern of tied weights of so many letters");
    std::vector<const Slot*> found;
    for (const Slot& slot : slots)
      if (slot.path == pattern) return std::vector<const Slot*>{&slot};
    for (const Slot& slot : slots) {
      i.step();
      if (begins_with(slot.path, pattern)) found.push_back(&slot);
    }
    return found;
  };
  for (const auto& entry : keys->entries()) {
    if (!entry.key.is_bound()) continue;
    const std::vector<const Slot*> targets = matching(i.words(entry.key, "names of parameters")),
                                   sources = matching(i.words(entry.value, "names of parameters"));
    if (targets.empty() && !sources.empty()) continue;  // already one module, whose parameters have one path
    if (targets.empty() || sources.empty() || targets.size() % sources.size() != 0)
      i.raise("ValueError", "There is an issue with your definition of `tie_weights_keys` for " + i.written(entry.key) + ":" +
                                i.written(entry.value));
    for (std::size_t at = 0; at < targets.size(); ++at) {
      const Slot& source = *sources[at % sources.size()];
      i.set_attribute(targets[at]->module, targets[at]->name, i.torch().module_attribute(*source.module.as<InstanceObject>(), source.name));
    }
  }
  return Value::none();
}

// ---- masks (masking_utils) ------------------------------------------------------------------------------------------

RunOptions::Attention attention_of(Interpreter& i, const Value& name) {
  const std::string& words = i.words(name, "attention implementations");
  if (words == "eager") return RunOptions::Attention::eager;
  if (words == "sdpa") return RunOptions::Attention::sdpa;
  if (words == "flash_attention_2") return RunOptions::Attention::flash;
  if (words == "flash_attention_3") return RunOptions::Attention::flash3;
  if (words == "flash_attention_4") return RunOptions::Attention::flash4;
  i.unknown("the attention implementation '" + words + "'", "sdpa, eager or flash_attention_2");
}

/// flash_attention(name, query, key, value, is_causal, dropout, window, position_ids) of [batch, heads, length, dim].
Value flash_attention(Interpreter& i, Bound& a) {
  const Tensor query = i.torch().tensor_of(a[1], "query"), key = i.torch().tensor_of(a[2], "key"), value = i.torch().tensor_of(a[3], "value");
  if (query.rank() != 4 || key.rank() != 4 || value.rank() != 4) i.torch().wrong_shape("flash attention asks for [batch, heads, length, dim]");
  const Tensor positions = i.torch().tensor_or_none(a[7], "position_ids");
  const program::AttentionCall call{.kind = attention_of(i, a[0]),
                                    .causal = i.truth(a[4]),
                                    .dropout = i.number(a[5], "dropout"),
                                    .window = a.has(6) ? i.whole(a[6], "sliding_window") : 0,
                                    .positions = &positions};
  return i.torch().wrap(program::attend(query, key, value, {}, call));
}

/// mask(kind, attention, embeddings, positions, width, may skip): what the interface's attention takes where nothing is padded.
Value mask(Interpreter& i, Bound& a) {
  const std::string& kind = i.words(a[0], "masks");
  RunOptions options;
  options.attention = attention_of(i, a[1]);
  const Tensor embeddings = i.torch().tensor_of(a[2], "inputs_embeds");
  if (embeddings.rank() != 3) i.unknown("a mask for embeddings of " + std::to_string(embeddings.rank()) + " dimensions");
  program::Tape& tape = embeddings.tape();
  const std::optional<std::int64_t> width = a.has(4) ? std::optional(i.whole(a[4], "windows")) : std::nullopt;
  Tensor made;
  if (kind == "bidirectional") {
    made = width ? program::bidirectional_window_mask(tape, options, embeddings, *width)
                 : program::bidirectional_mask(tape, options, embeddings);
  } else {
    if (a.has(3)) program::find_packed_sequences(tape);
    made = kind == "chunked"     ? program::chunked_causal_mask(tape, options, embeddings, width.value_or(0))
           : i.truth(a[5]) ? program::causal_mask(tape, options, embeddings, width)
                                 : program::materialized_causal_mask(tape, options, embeddings);
  }
  return made ? i.torch().wrap(std::move(made)) : Value::none();
}

Value find_packed(Interpreter& i, Bound& a) {
  program::find_packed_sequences(i.torch().tensor_of(a[0], "position_ids").tape());
  return Value::none();
}

/// tensor.sum() == tensor.numel(), read by the host, which finds padding unless the host itself has filled the tensor.
Value ask_whether_all(Interpreter& i, Bound& a) {
  const Tensor padding = i.torch().tensor_of(a[0], "a padding mask");
  program::Tape& tape = padding.tape();
  const Tensor total = tape.empty({}, DType::int64);
  {
    const Tensor counted = program::to(padding, DType::int64);
    program::in_place(total, {&counted});
  }
  const Tensor equal = program::elementwise(tape, {&total}, DType::boolean);
  return Value::boolean(i.torch().uniform(a[0]).value_or(0) != 0);
}

/// tensor.all(), read by the host; false where it is not known.
Value ask_all(Interpreter& i, Bound& a) {
  const Tensor padding = i.torch().tensor_of(a[0], "a padding mask");
  program::Tape& tape = padding.tape();
  const Tensor all = program::reduced_to(padding, {}, false, DType::boolean);
  tape.copy({.direction = Copy::Direction::device_to_host, .bytes = all.bytes()}, tape.stream);
  tape.read_back();
  return Value::boolean(i.torch().uniform(a[0]).value_or(0) != 0);
}

/// _compute_mask_indices(shape, mask_prob, mask_length, attention_mask, min_masks): spans that NumPy draws, as a mask of the host. So many as
/// are expected, and none over another; their places do not matter.
Value masked_spans(Interpreter& i, Bound& a) {
  const std::vector<Value> shape = i.all_of(a[0]);
  if (shape.size() != 2) i.raise("ValueError", "not enough values to unpack");
  const std::int64_t rows = i.whole(shape[0], "sizes"), length = i.whole(shape[1], "sizes"), span = i.whole(a[2], "mask_length");
  if (span < 1) i.raise("ValueError", "`mask_length` has to be bigger than 0.");
  if (span > length)
    i.raise("ValueError", "`mask_length` has to be smaller than `sequence_length`, but got `mask_length`: " + std::to_string(span) +
                              " and `sequence_length`: " + std::to_string(length) + "`");
  constexpr double kExpectedDraw = 0.5;  // epsilon, which rounds up or down
  auto spans = static_cast<std::int64_t>(i.number(a[1], "mask_prob") * static_cast<double>(length) / static_cast<double>(span) + kExpectedDraw);
  spans = std::min({std::max(spans, a.has(4) ? i.whole(a[4], "min_masks") : 0), length / span, length - span + 1});
  const program::Dims sizes = i.torch().checked({rows, length});
  std::vector<double> truths;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t at = 0; at < length; ++at) truths.push_back(at < spans * span ? 1 : 0);
  return i.torch().follow(i.torch().wrap(i.host_tape().empty(sizes, DType::boolean)), truths);
}

// ---- the rest -------------------------------------------------------------------------------------------------------

// ---- where the loss begins --------------------------------------------------------------------------------------------

/// Marks once in every forward that what runs from here on is the loss.
class LossMark {
 public:
  void operator()(Interpreter& i) {
    program::Tape& tape = i.torch().tape_of(i.text("cuda"));
    if (&tape == &i.host_tape() || std::exchange(run_, i.runs()) == i.runs()) return;
    tape.phase(Phase::loss);
  }

 private:
  std::int64_t run_ = -1;
};

/// loss_function begins it, or a loss that a model calls by itself.
void define_loss_mark(Interpreter& i) {
  const auto mark = std::make_shared<LossMark>();
  i.library("plimsoll").attributes[i.symbol("loss_begins")] = i.native("plimsoll.loss_begins", "", [mark](Interpreter& inner, Bound&) {
    (*mark)(inner);
    return Value::none();
  });
  for (const char* name : {"cross_entropy", "mse_loss", "binary_cross_entropy_with_logits", "nll_loss", "ctc_loss"}) {
    auto& functions = i.library("torch.nn.functional").attributes;
    const auto known = functions.find(i.symbol(name));
    if (known == functions.end()) continue;
    known->second = i.native(std::string("torch.nn.functional.") + name, "*args, **kwargs",
                             [mark, loss = known->second](Interpreter& inner, Bound& a) {
                               (*mark)(inner);
                               return inner.call(loss, CallArguments{a.rest, a.keyword_rest});
                             });
  }
}

Value renames_attributes(Interpreter& i, Bound& a) {
  auto* type = a[0].as<ClassObject>();
  if (type == nullptr) i.raise("TypeError", "renames_attributes() asks for a class");
  type->renames = true;
  return Value::boolean(true);
}

Value class_property(Interpreter& i, Bound& a) {
  return Value(new WrapperObject(i.heap(), WrapperObject::Kind::class_property, a[0]));
}

Value imported(Interpreter& i, Bound& a) {
  Value made = i.imported(i.words(a[0], "modules"), i.symbol(i.words(a[1], "names")));
  if (const auto* library = made.as<NamespaceObject>(); library != nullptr && !library->known)
    i.raise("ImportError", "cannot import name " + i.written(a[1]) + " from " + i.written(a[0]));
  return made;
}

constexpr LibraryRow kRows[] = {
    {"tie_weights", "model, keys", tie_weights},
    {"mask", "kind, attention, embeddings, positions, width, may_skip", mask},
    {"flash_attention", "name, query, key, value, is_causal, dropout, window, position_ids", flash_attention},
    {"find_packed", "position_ids", find_packed},
    {"ask_whether_all", "tensor", ask_whether_all},
    {"ask_all", "tensor", ask_all},
    {"renames_attributes", "type", renames_attributes},
    {"class_property", "function", class_property},
    {"imported", "module, name", imported},
};

}  // namespace

void define_mechanisms(Interpreter& i) {
  NamespaceObject& library = i.library("plimsoll");
  for (const LibraryRow& row : kRows)
    library.attributes[i.symbol(row.name)] = i.native(std::string("plimsoll.") + row.name, row.signature, row.run);
  define_loss_mark(i);
}

void define_transformers(Interpreter& i) {
  define_mechanisms(i);
  i.replace_function("_compute_mask_indices", i.native("_compute_mask_indices", "shape, mask_prob, mask_length, attention_mask=, min_masks=", masked_spans));
  define_experts(i);
  define_liger(i);
  i.library("plimsoll").attributes[i.symbol("has_timm")] = Value::boolean(false);
  put_texts_over(i, "src/code/transformers/python/");
  const Value absent = i.native("is_available", "*args, **kwargs", [](Interpreter&, Bound&) { return Value::boolean(false); });
  i.set_rule([absent, &i](const std::string& path, const std::string& name) {
    // `from transformers import XConfig`, without looking through all models' texts for it.
    if (path == "transformers" && name.ends_with("Config")) {
      const Value found = i.call(i.imported("transformers.models.auto.auto_factory", i.symbol("config_named")), std::vector<Value>{i.text(name)});
      if (!found.is_none()) return found;
    }
    // Packages beside torch are not installed, and there is one kind of device.
    if (name == "is_timm_available") return Value();
    const bool asks = path.starts_with("transformers.utils") && name.starts_with("is_") && name.ends_with("_available") && name != "is_torch_available" &&
                      name != "is_torch_flex_attn_available";
    return asks ? absent : Value();
  });
}

}  // namespace plimsoll::code
