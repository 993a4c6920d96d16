// engine: how much of a device a rollout engine takes, and how large its cache is.
#include <algorithm>

#include "command.hpp"
#include "plimsoll/document.hpp"
#include "plimsoll/engine.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::cli {
namespace {

const std::vector<std::string> kFormats{"text", "json", "markdown", "csv", "html"};

/// "max_model_len" is --max-model-len.
std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

EngineSetting setting_of(const Arguments& arguments) {
  std::vector<std::pair<std::string, std::string>> said;
  for (const EngineOption& option : engine_options()) {
    const std::string flag = flag_of(option.key);
    if (arguments.has(flag)) said.emplace_back(option.key, option.is_flag ? "true" : arguments[flag]);
  }
  return engine_setting(said);
}

std::string written(const EnginePlan& plan, const std::string& format, const std::string& model, const std::string& cluster) {
  if (format == "json") return to_json(plan, model, cluster);
  const Document document = document_of(plan, model, cluster);
  if (format == "markdown") return to_markdown(document);
  if (format == "csv") return to_csv(document);
  return format == "html" ? to_html(document) : document.text;
}

int run_engine(const Arguments& arguments) {
  const std::string format = arguments.has("--json") ? "json" : arguments.has("--format") ? arguments["--format"] : "text";
  if (std::find(kFormats.begin(), kFormats.end(), format) == kFormats.end())
    fail("there is no format '" + format + "'", "--format", suggest(format, kFormats));
  const Model model = load_model(arguments["MODEL"]);
  const Cluster cluster = parse_cluster(arguments["--on"]);
  const EnginePlan plan = plan_engine(model, cluster, setting_of(arguments));
  print_to(arguments, written(plan, format, model.name, cluster.name));
  return plan.refused.empty() ? kFits : kDoesNotFit;
}

}  // namespace

Command engine_command() {
  Command command{
      "engine",
      "a rollout engine on its devices: weights, profile, and the cache that is left",
      "  plimsoll engine qwen2.5-7b --on 1xh100-sxm --engine vllm@0.11 --max-model-len 8192\n"
      "  plimsoll engine qwen3-235b-a22b --on 4xh100-sxm --engine sglang --tp 4 --weights fp8-block --mem-fraction-static 0.93\n"
      "  plimsoll engine llama-3.1-8b --on 1xa100-80gb-sxm --gpu-memory-utilization 0.3 --held-by-others '40 GiB' --enable-sleep-mode",
      {},
      run_engine,
      {}};
  command.options = {{Option::positional, "MODEL", "a shipped model, a config.json, or a folder that holds one", true, {}},
                     {Option::value, "--on", "cluster: 4xh100-sxm, 2x8xh200", true, {}}};
  for (const EngineOption& option : engine_options())
    command.options.push_back({option.is_flag ? Option::flag : Option::value, flag_of(option.key), option.help, false, option.group});
  command.options.push_back({Option::flag, "--json", "print one plimsoll/engine/1 object", false, {}});
  command.options.push_back({Option::value, "--format", "text, json, markdown, csv, html", false, {}});
  command.options.push_back({Option::value, "-o", "write to this file", false, {}});
  return command;
}

}  // namespace plimsoll::cli
