// models, graph, hardware: what there is to estimate.
#include "command.hpp"
#include "plimsoll/calibrate.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/machine.hpp"
#include "plimsoll/plimsoll.hpp"
#include "plimsoll/rehearse.hpp"

namespace plimsoll::cli {
namespace {

int run_models(const Arguments& arguments) {
  const bool json = arguments.has("--json");
  if (arguments.has("--config")) {
    const auto config = hub_config(arguments["--config"]);
    if (!config) fail("no shipped model has the shape of '" + arguments["--config"] + "'", "--config", "plimsoll models lists them");
    return print(config->text), kFits;
  }
  if (!arguments.has("NAME")) return print(json ? model_list_json() : model_list()), kFits;
  const Model model = load_model(arguments["NAME"]);
  return print(json ? model_sheet_json(model) : model_sheet(model)), kFits;
}

int run_graph(const Arguments& arguments) {
  const std::string format = arguments.has("--json") ? "json" : arguments.has("--format") ? arguments["--format"] : "dot";
  if (format != "dot" && format != "json") fail("there is no format '" + format + "'", "--format", suggest(format, {"dot", "json"}));
  const LayerGraph graph(load_model(arguments["MODEL"]));
  return print(format == "dot" ? graph.to_dot() : graph.to_json()), kFits;
}

int run_hardware(const Arguments& arguments) {
  if (arguments.has("--template")) return print_to(arguments, hardware_template(arguments["--template"], arguments["--on"])), kFits;
  if (arguments.has("--from")) return print_to(arguments, to_json(read_machine(arguments.all("--from"), arguments["--on"]))), kFits;
  if (arguments.has("--json")) return print(hardware_json(arguments["NAME"])), kFits;
  return print(arguments.has("NAME") ? hardware_sheet(arguments["NAME"]) : hardware_list()), kFits;
}

int run_frameworks(const Arguments& arguments) {
  const std::string& name = arguments["NAME"];
  if (arguments.has("--json")) return print(framework_json(name)), kFits;
  return print(name.empty() ? framework_list() : framework_sheet(name)), kFits;
}

}  // namespace

Command frameworks_command() {
  return {"frameworks",
          "the frameworks whose steps are modelled, or what one can do and takes by default",
          "  plimsoll frameworks\n  plimsoll frameworks torchtitan",
          {{Option::positional, "NAME", "a framework", false, {}}, {Option::flag, "--json", "print JSON", false, {}}},
          run_frameworks,
          {}};
}

Command models_command() {
  return {"models",
          "the shipped models, or the layers of one",
          "  plimsoll models\n  plimsoll models llama-3.1-8b",
          {{Option::positional, "NAME", "a shipped model, a config.json, or a graph file", false, {}},
           {Option::flag, "--json", "print JSON", false, {}},
           {Option::value, "--config", "print the config.json of a model by its name on Hugging Face's hub", false, {}}},
          run_models,
          {}};
}

Command graph_command() {
  return {"graph",
          "the layer graph of a model",
          "  plimsoll graph gpt2 --format dot | dot -Tsvg > gpt2.svg",
          {{Option::positional, "MODEL", "a shipped model, a config.json, or a graph file", true, {}},
           {Option::value, "--format", "dot or json", false, {}},
           {Option::flag, "--json", "the same as --format json", false, {}}},
          run_graph,
          {}};
}

Command hardware_command() {
  return {
      "hardware",
      "the shipped accelerators and clusters, or one with the source of every number",
      "  plimsoll hardware\n  plimsoll hardware mi300x\n  plimsoll hardware --from topo.txt lscpu.txt --on h100-sxm -o this-cluster.json\n"
      "  plimsoll hardware --template gpu --on h100-sxm -o my-gpu.json",
      {{Option::positional, "NAME", "an accelerator, a cluster, or a file", false, {}},
       {Option::words, "--from", "write a hardware file of the machines that nvidia-smi topo -m, lscpu, sinfo -N … showed", false, {}},
       {Option::value, "--template", "gpu or cluster: write a hardware file to begin with, a word beside every number", false, {}},
       {Option::value, "--on", "with --from: the device, where no file names it; with --template: the one to begin with", false, {}},
       {Option::value, "-o", "with --from and --template: the file, else it is printed", false, {}},
       {Option::flag, "--json", "print JSON: the lists of names, or the file itself", false, {}}},
      run_hardware,
      {}};
}

}  // namespace plimsoll::cli
