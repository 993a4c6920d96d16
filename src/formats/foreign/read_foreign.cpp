// From files to a model, a cluster and a strategy.
#include <algorithm>
#include <cctype>

#include "formats/foreign/cluster_texts.hpp"
#include "formats/foreign/format.hpp"
#include "formats/foreign/launch.hpp"
#include "formats/foreign/read_run.hpp"
#include "formats/foreign/router_loss.hpp"
#include "formats/foreign/stated_releases.hpp"
#include "formats/row_reader.hpp"
#include "formats/shell/unknown.hpp"
#include "model/hub_names.hpp"
#include "plimsoll/code.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/framework.hpp"
#include "strategy/setting.hpp"

namespace plimsoll {
namespace formats {
namespace {

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Whether a line of the text, from its start, is "[section]".
bool has_sections(const std::string& text) {
  for (std::size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1) {
    if (text[at] != '[') continue;
    const std::size_t close = text.find_first_of("]\n", at);
    if (close != std::string::npos && text[close] == ']') return true;
  }
  return false;
}

}  // namespace

Syntax syntax_of(const std::string& path, const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (ends_with(path, ".json")) return Syntax::json;
  if (ends_with(path, ".toml")) return Syntax::toml;
  if (ends_with(path, ".yaml") || ends_with(path, ".yml")) return Syntax::yaml;
  const bool script = text.rfind("#!", 0) == 0 || text.find("#SBATCH") != std::string::npos;
  if (script || ends_with(path, ".sh") || ends_with(path, ".sbatch") || ends_with(path, ".slurm") || ends_with(path, ".bash"))
    return Syntax::shell;
  if (first != std::string::npos && text[first] == '{') return Syntax::json;
  if (has_sections(text)) return Syntax::toml;
  return text.find(": ") != std::string::npos || text.find(":\n") != std::string::npos ? Syntax::yaml : Syntax::shell;
}

Node parse(Syntax syntax, const std::string& text, const std::string& where) {
  switch (syntax) {
    case Syntax::json:
      return parse_json_text(text, where);
    case Syntax::toml:
      return parse_toml_text(text, where);
    default:
      return parse_yaml_text(text, where);
  }
}

namespace {

const Format& recognised(const Node& tree, const std::string& path) {
  if (tree.is_table()) refuse_other_programs(tree, path);
  const Format* best = nullptr;
  int most = 0;
  for (const Format& format : tree_formats()) {
    const int sure = tree.is_table() ? format.recognises(tree) : 0;
    if (sure > most) most = sure, best = &format;
  }
  constexpr int kSure = 2;  // one key that many programs have tells of none
  if (best && most >= kSure) return *best;
  std::string known;
  for (const Format& format : tree_formats()) known += (known.empty() ? "" : ", ") + std::string(format.name);
  fail("is of no format that is known", path, "one of " + known + "; --from FORMAT:FILE forces one");
}

}  // namespace

std::string recognised_format(const Node& tree, const std::string& path) { return recognised(tree, path).name; }

void read_file(Reading& reading, const std::string& path, const std::string& format) {
  const std::string text = reading.text_of(path);
  if (format.empty() && read_cluster_text(reading, text, path)) return;
  if (format.empty() && read_requirements(reading, text, path)) return reading.note_format("requirements");
  if (format.empty() && ends_with(path, ".py"))
    refuse("a Python program is not read: what it configures or starts is known as it runs", readable(path),
           "give the line that starts its training behind --, or rehearse it: plimsoll rehearse --on … -- python " + readable(path).substr(0, 100));
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first != std::string::npos && text[first] == kUnknown && text.find_first_not_of(" \t\n", end_of_mark(text, first)) == std::string::npos)
    fail("what it holds is " + told(text) + " and is not known here", readable(path), "give the file itself beside the script");
  const Syntax syntax = syntax_of(path, text);
  if (syntax == Syntax::shell && (format.empty() || format == "shell")) {
    reading.note_format("shell");
    return read_shell_script(reading, text, path);
  }
  const std::string where = is_unknown(path) ? readable(path) : path;
  const Node tree = parse(syntax == Syntax::shell ? Syntax::yaml : syntax, text, where);
  const Format& chosen = format.empty() ? recognised(tree, where) : find_format(format);
  if (!tree.is_table()) fail("expected a table of keys", where);
  reading.note_format(chosen.name);
  chosen.read(reading, tree);
}

bool is_script(const std::string& path, const std::string& text) { return syntax_of(path, text) == Syntax::shell; }

namespace {

/// "accelerate:file.yaml" forces a format; "C:\file" and "a:b" of a file that exists do not.
void read_input(Reading& reading, const std::string& input) {
  const std::size_t colon = input.find(':');
  const std::string front = input.substr(0, colon);
  const bool named = colon != std::string::npos &&
                     std::all_of(front.begin(), front.end(), [](unsigned char c) { return std::islower(c) != 0 || c == '-' || c == '_'; });
  if (!named) return read_file(reading, input, {});
  if (front != "shell") (void)find_format(front);
  read_file(reading, input.substr(colon + 1), front);
}

// ---- the model -------------------------------------------------------------------------------------------------------------

/// Fields of a model as a row has them.
std::string model_fields(const Reading& reading) {
  ObjectText model;
  for (const ForeignKey& key : reading.keys()) {
    if (key.key.rfind("model.", 0) != 0) continue;
    const std::string& value = key.value;
    const bool number = !value.empty() && value.find_first_not_of("0123456789.") == std::string::npos;
    const bool plain = number || value == "true" || value == "false" || value.front() == '{';
    model.raw(key.key.substr(6), plain ? value : ObjectText::quoted(value));
  }
  return ObjectText().raw("model", model.text()).text();
}

bool has_fields(const Reading& reading) {
  return std::any_of(reading.keys().begin(), reading.keys().end(),
                     [](const ForeignKey& key) { return key.key == "model.hidden_size" || key.key == "model.num_layers"; });
}

/// Whether the layers of the files' program are transformers' modules, which that package's own code plays.
bool runs_transformers(const Reading& reading) {
  const std::string framework = reading.value("framework");
  return framework.empty() || find_framework(framework).code == ModelCode::transformers;
}

/// Whether a text can be one of transformers' model types.
bool is_model_type(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](const char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; });
}

/// Throws Error where the files name a checkpoint whose class lies in its own repository.
void refuse_own_code(const ForeignKey& name) {
  if (const auto type = model::own_code_type_of(name.value))
    refuse("the class of '" + name.value + "' is code of its own repository (model type '" + *type + "', trust_remote_code), which is not shipped", name.where,
           "give MODEL: its folder, with config.json and that code, beside --code WHEEL; or rehearse the program itself: plimsoll rehearse --on … -- COMMAND");
}

/// By transformers' own code: of what the options, the files' config.json or the files' name of a model say.
Model coded_model_of(const Reading& reading, const ForeignOptions& options) {
  const auto& [config, where] = reading.model_config();
  const ForeignKey* name = reading.find("model");
  if (!runs_transformers(reading))
    refuse("transformers' code is not what " + reading.value("framework") + " runs, which has layers of its own",
           name ? name->where : std::string(), "leave --code out");
  if (options.model.empty() && config.empty() && (!name || is_unknown(name->value)))
    fail("the files do not say which model is trained", {}, "give MODEL: a config.json, a shipped name or a model type");
  const std::string asked = !options.model.empty() ? options.model : name ? name->value : std::string();
  if (options.model.empty() && config.empty()) refuse_own_code(*name);
  PackageModel package = package_model(asked, options.packages);
  if (options.model.empty() && !config.empty()) {
    package.config = config;
    package.where = where;
    package.model_type.clear();
  }
  package.auto_classes = reading.value("checkpoint.auto_class");
  if (package.config.empty() && !is_model_type(asked))
    fail("the sizes of '" + asked.substr(0, 100) + "' are not known, and nothing is downloaded", name ? name->where : std::string(),
         "give MODEL: its config.json");
  return model_of_package(package);
}

/// A model by its name, with the vocabulary that the files say where they do: Megatron's is its tokenizer's, not the checkpoint's.
Model named_model(const Reading& reading, const std::string& name, const Strategy& strategy) {
  Model named = load_model(name);
  const ForeignKey* tokens = reading.find("model.vocab_size");
  if (!tokens) return named;
  const std::string fields = ObjectText()
                                 .raw("name", ObjectText::quoted(named.name))
                                 .raw("hidden_size", std::to_string(named.hidden_size))
                                 .raw("vocab_size", tokens->value)
                                 .text();
  const JsonDocument document = JsonDocument::parse(ObjectText().raw("model", fields).text(), "the model's vocabulary");
  RowCaches caches;
  Model model = *read_row_model(document.root(), strategy, caches);
  model.assumed = named.assumed;
  return model;
}

Model model_of(const Reading& reading, const ForeignOptions& options, const Strategy& strategy) {
  if (!options.packages.empty()) return coded_model_of(reading, options);
  if (!options.model.empty()) return load_model(options.model);
  if (!reading.model_config().first.empty()) return parse_model(reading.model_config().first, reading.model_config().second, "model");
  const ForeignKey* name = reading.find("model");
  const bool fields = has_fields(reading);
  if (!name && !fields)
    fail("the files do not say which model is trained", {},
         "give MODEL, or rehearse the program itself: plimsoll rehearse --on … -- COMMAND");
  if (!fields) {
    if (is_unknown(name->value) && options.model.empty())
      fail("the model comes from " + told(name->value) + " and is not known here", name->where, "give MODEL, or " + asked_for(name->value));
    try {
      return named_model(reading, name->value, strategy);
    } catch (const Error& error) {
      if (shipped_config(name->value)) throw error.at(name->where);  // it says itself what plays it
      refuse_own_code(*name);
      const std::string coded = runs_transformers(reading) ? ", with --code WHEEL where transformers' own code plays its type" : "";
      throw Error(error.code(), "the model '" + name->value.substr(0, 100) + "' is not known: " + error.message(), name->where,
                  "give MODEL: a shipped name or its config.json" + coded);
    }
  }
  if (const ForeignKey* problem = reading.find("model.not_modelled"))
    refuse("not modelled by arguments: " + problem->value, problem->where, "give MODEL");
  if (const ForeignKey* tokenizer = reading.find("checkpoint.tokenizer"); tokenizer && !reading.has("model.vocab_size"))
    fail("the vocabulary of the tokenizer " + tokenizer->value.substr(0, 80) + " is not known", tokenizer->where,
         "say vocab_size among the arguments, or give MODEL");
  for (const char* needed : {"hidden_size", "num_layers", "num_attention_heads", "vocab_size"})
    if (!reading.has(std::string("model.") + needed))
      fail("the files do not say the model's " + std::string(needed), {},
           std::string(needed) == "vocab_size" ? "give --vocab-size in the arguments, or MODEL" : "give MODEL");
  const JsonDocument document = JsonDocument::parse(model_fields(reading), "the model's dimensions");
  RowCaches caches;
  Model model = *read_row_model(document.root(), strategy, caches);
  if (model.name.empty()) model.name = model.model_type + " of " + std::to_string(model.layers) + " x " + std::to_string(model.hidden_size);
  return model;
}

// ---- the strategy and the cluster -------------------------------------------------------------------------------------------

bool is_ours(const std::string& key) {
  for (const char* other : {"model", "cluster", "slurm", "env", "local_batch", "on", "checkpoint", "auto_wrap"})
    if (key == other || key.rfind(std::string(other) + ".", 0) == 0) return false;
  return true;
}

/// The keys of the strategy, what is said before what follows from it.
template <class Take>
void for_each_of_ours(const std::vector<ForeignKey>& keys, const Take& take) {
  for (const auto kind : {ForeignKey::Kind::said, ForeignKey::Kind::derived, ForeignKey::Kind::by_default})
    for (const ForeignKey& key : keys)
      if (key.kind == kind && is_ours(key.key)) take(key);
}

void set_keys(Strategy& strategy, const Reading& reading) {
  strategy::Source source;
  for_each_of_ours(reading.keys(), [&](const ForeignKey& key) { strategy::set_text(strategy, key.key, key.value, key.where, source); });
}

bool has_count(const std::string& on) { return !on.empty() && std::isdigit(static_cast<unsigned char>(on.front())) != 0; }

/// Throws Error where a file counts other processes than --on does (Accelerate's num_processes).
void require_same_world(const Reading& reading, const std::string& on, const Cluster& cluster) {
  const ForeignKey* world = reading.find("gpus");
  const std::int64_t here = reading.count("gpus"), nodes = std::max<std::int64_t>(reading.count("cluster.nodes"), 1);
  const std::int64_t counted = cluster.nodes * cluster.gpus_per_node;
  if (!world || here == 0 || here == counted) return;
  const std::string several = nodes > 1 && here % nodes == 0 ? std::to_string(nodes) + "x" + std::to_string(here / nodes) : std::to_string(here);
  const bool follows = world->foreign.empty();  // of several keys, which `where` names
  fail("--on " + on + " has " + std::to_string(counted) + " devices, and " + std::to_string(here) + " run (" + (follows ? world->where : world->foreign) + ")",
       follows ? std::string() : world->where,
       "--on " + several + "x" + cluster.accelerator.name + ", or change the line");
}

/// Throws Error where a launcher, or the job that it runs in, counts other devices than --on does. Of a script whose nodes have as many, --on
/// may say that there are more of them: the report lists that.
void require_same_count(const Reading& reading, const std::string& on, const Cluster& cluster) {
  const ForeignKey* per_node = reading.find("cluster.gpus_per_node");
  if (!per_node || per_node->kind == ForeignKey::Kind::by_default) return;
  static const std::vector<std::string> launchers{"torchrun", "deepspeed", "hostfile", "--include", "VISIBLE_DEVICES", "ntasks-per-node",
                                                  "swift"};
  const bool launched = std::find(launchers.begin(), launchers.end(), per_node->foreign) != launchers.end();
  if (!launched && per_node->kind != ForeignKey::Kind::derived) return;  // what a machine has, not what runs
  const std::int64_t here = reading.count("cluster.gpus_per_node"), nodes = reading.count("cluster.nodes");
  const std::int64_t counted = cluster.nodes * cluster.gpus_per_node;
  if (nodes > 0 && cluster.gpus_per_node != here ? counted == nodes * here : counted % here == 0) return;
  const std::string by = launched ? per_node->foreign : per_node->where;
  const std::string several = nodes > 1 ? std::to_string(nodes) + "x" : std::string();
  fail("--on " + on + " has " + std::to_string(counted) + " devices, and " + several + std::to_string(here) + " run (" + by + ")",
       launched ? per_node->where : std::string(),
       "--on " + several + std::to_string(here) + "x" + cluster.accelerator.name + ", or change the line");
}

}  // namespace

Cluster cluster_of_run(const Reading& reading, const ForeignOptions& options) {
  const std::string device = options.on.empty() ? reading.value("cluster.device") : options.on;
  const std::int64_t per_node = reading.count("cluster.gpus_per_node"), world = reading.count("gpus");
  std::int64_t nodes = reading.count("cluster.nodes");
  if (device.empty())
    fail("the files do not say which devices the run has", {}, "add --on, for example --on h100-sxm, or with their number --on 8xh100-sxm");
  const auto shipped = shipped_clusters();
  if (has_count(device) || std::find(shipped.begin(), shipped.end(), device) != shipped.end()) {
    const Cluster cluster = parse_cluster(device);
    require_same_count(reading, device, cluster);
    require_same_world(reading, device, cluster);
    return cluster;
  }
  if (nodes > 0 && per_node > 0) return parse_cluster(std::to_string(nodes) + "x" + std::to_string(per_node) + "x" + device);
  if (world > 0 && nodes > 1) {
    if (world % nodes != 0) fail(std::to_string(world) + " processes are no multiple of " + std::to_string(nodes) + " nodes", {});
    return parse_cluster(std::to_string(nodes) + "x" + std::to_string(world / nodes) + "x" + device);
  }
  if (world > 0) return parse_cluster(std::to_string(world) + "x" + device);
  if (per_node > 0) return parse_cluster(std::to_string(per_node) + "x" + device);
  if (nodes == 0 && reading.has(kLoneProcess)) return parse_cluster("1x" + device);
  if (nodes == 0) fail("neither the files nor --on say how many devices the run has", {}, "--on 8x" + device);
  return parse_cluster(std::to_string(nodes) + "x" + std::to_string(parse_cluster(device).node.gpus) + "x" + device);
}

namespace {

/// What DeepSpeed makes of 16-bit weights where its JSON has neither fp16 nor bf16. zero.Init, within which the Trainer builds a model for ZeRO-3, makes
/// fp32 ones (partition_parameters.py, Init's dtype); elsewhere they stay, and gradients travel and add up in fp32
/// (DeepSpeedEngine.communication_data_type, get_data_types).
void leave_without_half(Reading& reading) {
  const std::string why = "DeepSpeed's JSON has neither fp16 nor bf16";
  if (reading.is("zero_stage", "3")) {
    reading.forget("param_dtype");
    return reading.derive("param_dtype", "fp32", why + ", and zero.Init makes weights in fp32 then");
  }
  for (const char* key : {"deepspeed.communication_data_type", "deepspeed.data_types.grad_accum_dtype"})
    if (!reading.has(key)) reading.derive(key, "fp32", why);
}

/// The precision under a Trainer: its own arguments win over Accelerate's file, and where neither says, it is fp32.
void settle_precision(Reading& reading) {
  const bool trainer = reading.has_format("transformers") || reading.has_format("llama-factory") || reading.has_format("trl") ||
                       reading.has_format("ms-swift");
  const ForeignKey *own = reading.find("precision"), *accelerate = reading.find("mixed_precision");
  const bool says_half = accelerate && accelerate->value != "no";
  if (!own && accelerate && !says_half && (reading.is("param_dtype", "bf16") || reading.is("param_dtype", "fp16"))) {
    reading.forget("mixed_precision");
    return settle_precision(reading);
  }
  if (own && accelerate && own->kind != ForeignKey::Kind::by_default && accelerate->value != "fp8") return reading.forget("mixed_precision");
  if (own && accelerate && own->kind == ForeignKey::Kind::by_default && says_half) return reading.forget("precision");
  if (own && accelerate && !says_half) return reading.forget("mixed_precision");
  const bool half = reading.is("param_dtype", "bf16") || reading.is("param_dtype", "fp16");
  const bool of_json = own && own->kind == ForeignKey::Kind::by_default && own->value == "fp32";  // DeepSpeed's, whose engine casts nothing then
  if ((!own || of_json) && !accelerate && trainer && half && reading.is("framework", "deepspeed")) {
    leave_without_half(reading);
    if (of_json) {
      reading.forget("precision");
      return settle_precision(reading);
    }
  }
  if (!own && !accelerate && trainer && reading.is("param_dtype", "bf16"))
    return reading.derive("precision", "pure-bf16", "weights in bf16 without mixed precision");
  if (!own && !accelerate && trainer && reading.is("param_dtype", "fp16"))
    return reading.derive("precision", "pure-fp16", "weights in fp16 without mixed precision");
  if (!own && !accelerate && trainer) reading.assume("precision", "fp32", "bf16: false, fp16: false", "transformers 5.23");
}

}  // namespace

Strategy strategy_of(Reading& reading, const Model& model) {
  settle_precision(reading);
  for (std::size_t i = 0; i < reading.completions().size(); ++i) {
    const Reading::Completion completion = reading.completions()[i];
    completion(reading, model);
  }
  if (!reading.has("precision") && !reading.has("mixed_precision")) settle_precision(reading);  // weights came in half a checkpoint's type
  settle_releases(reading);
  Strategy strategy;
  set_keys(strategy, reading);
  return strategy;
}

namespace {

ScriptOptions script_options_of(const ForeignOptions& options) {
  ScriptOptions made;
  made.launch = options.launch;
  if (has_count(options.on)) {
    const Cluster machine = parse_cluster(options.on);
    made.nodes = machine.nodes;
    made.gpus_per_node = machine.gpus_per_node;
  }
  for (const std::string& one : options.values) {
    const std::size_t equals = one.find('=', one.rfind("$(", 0) == 0 ? one.rfind(")=") : 0);
    if (equals == std::string::npos || equals == 0) fail("expected NAME=VALUE, found '" + one.substr(0, 60) + "'", "--set");
    made.values.emplace_back(one.substr(0, equals), one.substr(equals + 1));
  }
  return made;
}

/// A script that no launcher starts is one process. Planned is one for each device, as torchrun and accelerate launch start them, and that is said.
void list_lone_process(const Reading& reading, ForeignRun& run) {
  const ForeignKey* lone = reading.find(kLoneProcess);
  const bool trainer = reading.has_format("transformers") || reading.has_format("trl");
  const std::int64_t devices = run.cluster.nodes * run.cluster.gpus_per_node;
  if (!lone || !trainer || devices == 1 || reading.has_format("accelerate")) return;
  run.unknown.push_back(lone->where + " " + lone->foreign + " starts one process, and the Trainer has one alone share " + std::to_string(devices) +
                        " devices (DataParallel): planned is a process a device, as torchrun and accelerate launch start them");
}

/// What follows from everything that was read: the model, unless it is `known`, the strategy and the cluster.
ForeignRun finish(Reading& reading, const ForeignOptions& options, const Model* known = nullptr) {
  reading.check_missing();
  ForeignRun run;
  if (known) {
    run.model = *known;
  } else {
    Strategy early;
    strategy::Source early_source;
    for (const char* key : {"seq_len", "framework", "task", "num_labels", "teacher"})
      if (const ForeignKey* said = reading.find(key)) strategy::set_text(early, key, said->value, said->where, early_source);
    run.model = as_task_has_it(model_of(reading, options, early), early);
    add_router_loss(reading, run.model);
  }
  run.strategy = strategy_of(reading, run.model);
  run.model_name = options.model.empty() ? reading.value("model") : options.model;
  if (options.model.empty()) run.model_config = reading.model_config().first;
  run.cluster = cluster_of_run(reading, options);
  run.formats = reading.formats();
  run.keys = reading.keys();
  run.unread = reading.unread();
  run.unknown = reading.unknown();
  if (const ForeignKey* nodes = reading.find("cluster.nodes"); nodes && !options.on.empty() && reading.count("cluster.nodes") != run.cluster.nodes)
    run.unknown.push_back(nodes->where + " " + nodes->value + " nodes (" + nodes->foreign + "): --on says " + std::to_string(run.cluster.nodes));
  list_lone_process(reading, run);
  run.strategy.unread_keys = run.unknown;  // the report lists them
  return run;
}

}  // namespace

ForeignRun read_exported(const ExportedRun& exported, const ExportPlan& plan) {
  Reading reading;
  reading.set_reader(read_file);
  for (const NamedText& file : exported.files) reading.add_file(file.name, file.text);
  for (const std::string& input : exported.reads) read_input(reading, input);
  reading.when_model_is_known([&](Reading& r, const Model&) {
    for (const char* key : {"cluster.nodes", "cluster.gpus_per_node"}) r.forget(key);
  });
  const std::string on =
      std::to_string(plan.cluster.nodes) + "x" + std::to_string(plan.cluster.gpus_per_node) + "x" + plan.cluster.accelerator.name;
  return finish(reading, {plan.model_name, on, {}}, &plan.model);
}

}  // namespace formats

ForeignRun read_foreign(const std::vector<std::string>& files, const ForeignOptions& options) {
  using namespace formats;
  Reading reading;
  reading.set_reader(read_file);
  for (const NamedText& file : options.texts) reading.add_file(file.name, file.text);
  reading.set_script_options(script_options_of(options));
  reading.set_said_beside(options.said_beside);
  read_release_options(reading, options.releases);
  std::vector<std::string> inputs = files;  // requirements first: they decide which defaults hold
  std::stable_partition(inputs.begin(), inputs.end(), [](const std::string& input) { return ends_with(input, ".txt"); });
  for (const std::string& input : inputs) read_input(reading, input);
  if (!options.launch_line.empty()) {
    std::vector<formats::Node> words;
    for (const std::string& word : options.launch_line) words.push_back(formats::Node::scalar(word, "the command line"));
    read_launch_line(reading, words);
  }
  reading.check_values();
  return finish(reading, options);
}

std::vector<ForeignLaunch> foreign_launches(const std::vector<std::string>& files, const ForeignOptions& options) {
  using namespace formats;
  std::vector<ForeignLaunch> launches;
  Reading reading;
  for (const NamedText& file : options.texts) reading.add_file(file.name, file.text);
  reading.set_script_options(script_options_of(options));
  reading.set_reader([&](Reading& into, const std::string& path, const std::string&) {
    const std::string text = into.text_of(path);
    if (!is_script(path, text)) return;
    for (const ScriptLaunch& one : launches_of_script(into, text, path)) launches.push_back({one.words.front().where, one.line, one.differs});
  });
  for (const std::string& input : files) reading.include(input.rfind("shell:", 0) == 0 ? input.substr(6) : input, formats::Node::scalar(input, "--from"));
  if (launches.empty()) fail("no script is among the files", "--all", "--from run.sh");
  return launches;
}

std::vector<std::pair<std::string, std::string>> strategy_keys(const ForeignRun& run) {
  std::vector<std::pair<std::string, std::string>> keys;
  formats::for_each_of_ours(run.keys, [&](const ForeignKey& key) { keys.emplace_back(key.key, key.value); });
  return keys;
}

ForeignCommand read_foreign_command(const std::vector<std::string>& files, const ForeignOptions& options) {
  using namespace formats;
  Reading reading;
  reading.set_script_options(script_options_of(options));
  std::vector<formats::Node> words;
  reading.set_reader([&](Reading& into, const std::string& path, const std::string& format) {
    const std::string text = into.text_of(path);
    if (read_cluster_text(into, text, path)) return;
    if (!is_script(path, text)) return read_file(into, path, format);
    std::vector<formats::Node> launched = launch_of_script(into, text, path);
    if (words.empty()) words = std::move(launched);
  });
  for (const std::string& input : files) reading.include(input, formats::Node::scalar(input, "--from"));
  reading.check_missing();
  if (!options.launch_line.empty()) words.clear();
  for (const std::string& word : options.launch_line) words.push_back(formats::Node::scalar(word, "the command line"));
  if (words.empty()) fail("the files start no program", "--from", "give the line that does behind --");
  ForeignCommand command;
  command.words = read_command(reading, words);
  command.cluster = cluster_of_run(reading, options);
  command.ranks = reading.has("slurm.tasks")
                      ? reading.count("slurm.tasks")
                      : reading.count("slurm.tasks_per_node") * std::max<std::int64_t>(1, reading.count("cluster.nodes"));
  return command;
}

Strategy strategy_to_search(const ForeignRun& run) {
  static const std::vector<std::string> decided = {"gpus",
                                                   "tp",
                                                   "pp",
                                                   "vp",
                                                   "cp",
                                                   "ep",
                                                   "etp",
                                                   "dp",
                                                   "dp_shard",
                                                   "dp_replicate",
                                                   "data_parallel",
                                                   "zero_stage",
                                                   "sequence_parallel",
                                                   "micro_batch",
                                                   "global_batch",
                                                   "grad_accum",
                                                   "micro_batches_per_step",
                                                   "pp_schedule",
                                                   "pp_layers",
                                                   "recompute",
                                                   "recompute_modules",
                                                   "recompute_method",
                                                   "recompute_num_layers",
                                                   "recompute_reentrant"};
  static const std::vector<std::string> groups = {"fsdp.", "ddp.", "deepspeed.zero_optimization."};
  const auto is_decided = [](const std::string& key) {
    return std::find(decided.begin(), decided.end(), key) != decided.end() ||
           std::any_of(groups.begin(), groups.end(), [&](const std::string& group) { return key.rfind(group, 0) == 0; });
  };
  std::vector<std::pair<std::string, std::string>> kept;
  for (const ForeignKey& key : run.keys)
    if (formats::is_ours(key.key) && !is_decided(key.key)) kept.emplace_back(key.key, key.value);
  kept.emplace_back("global_batch", std::to_string(resolve(run.strategy, run.model, run.cluster).global_batch));
  Strategy strategy;
  set_options(strategy, kept);
  return strategy;
}

std::vector<std::string> foreign_formats() {
  std::vector<std::string> names;
  for (const formats::Format& format : formats::tree_formats()) names.emplace_back(format.name);
  names.emplace_back("shell");
  return names;
}

}  // namespace plimsoll
