// The shipped models as a list, and one model as a table of its operators.
#include <fmt/core.h>

#include "plimsoll/report.hpp"
#include "report/json_text.hpp"
#include "report/layout.hpp"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t parameters_of(const Operator& op) {
  std::int64_t elements = 0;
  for (const ParameterTensor& tensor : op.parameters)
    if (tensor.tied_to.empty()) elements += tensor.elements();
  return elements;
}

std::string block_title(const Block& block) {
  std::string title = block.name;
  if (block.repeat > 1) title += fmt::format(" x {}", block.repeat);
  if (block.first > 0) title += fmt::format(" from {}", block.first);
  return title;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[b, s";
  for (const std::int64_t extent : shape) text += fmt::format(", {}", extent);
  return text + "]";
}

std::vector<std::string> operator_row(const Operator& op) {
  const std::int64_t elements = parameters_of(op);
  return {"  " + op.name, std::string(name_of(op.kind)), elements > 0 ? with_thousands(elements) : "",
          op.flops_per_token > 0 ? fmt::format("{:.4g}", op.flops_per_token) : "", shape_text(op.output_per_token)};
}

Json operator_object(const Operator& op) {
  return {{"name", op.name},
          {"kind", name_of(op.kind)},
          {"parameters", parameters_of(op)},
          {"forward_flops_per_token", op.flops_per_token},
          {"output_per_token", op.output_per_token}};
}

}  // namespace

std::string model_list() {
  std::vector<std::vector<std::string>> rows{{"name", "type", "layers", "hidden", "parameters", "active"}};
  for (const std::string& name : shipped_models()) {
    const Model model = load_model(name);
    const std::int64_t all = model.parameters(), active = model.active_parameters();
    rows.push_back({name, model.model_type, std::to_string(model.layers), std::to_string(model.hidden_size), with_thousands(all),
                    active == all ? "" : with_thousands(active)});
  }
  return columns(rows);
}

std::string model_list_json() {
  Json models = Json::array();
  for (const std::string& name : shipped_models()) {
    const Model model = load_model(name);
    models.push_back({{"name", name},
                      {"model_type", model.model_type},
                      {"parameters", model.parameters()},
                      {"active_parameters", model.active_parameters()}});
  }
  return json_text({{"schema", "plimsoll/models/1"}, {"models", std::move(models)}});
}

std::string model_sheet(const Model& model) {
  std::string text = fmt::format("{} ({}): {} parameters", model.name, model.architecture, with_thousands(model.parameters()));
  if (model.active_parameters() != model.parameters())
    text += fmt::format(", {} active per token", with_thousands(model.active_parameters()));
  text = printable(text) + (model.tied_embeddings ? ", head tied to the embedding\n\n" : "\n\n");
  std::vector<std::vector<std::string>> rows{{"layer", "kind", "parameters", "forward FLOPs/token", "output"}};
  for (const Block& block : model.blocks) {
    rows.push_back({printable(block_title(block)), "", with_thousands(block.parameters() * block.repeat), "", ""});
    for (const Operator& op : block.operators) rows.push_back(operator_row(op));
  }
  text += columns(rows) + "\nFLOPs of attention's two products depend on the sequence and are not in the column.\n";
  for (const std::string& line : model.assumed) text += wrapped("assumed: ", printable(line));
  for (const std::string& key : model.unread_keys) text += wrapped("not read: ", printable(key));
  return text;
}

std::string model_sheet_json(const Model& model) {
  Json blocks = Json::array();
  for (const Block& block : model.blocks) {
    Json operators = Json::array();
    for (const Operator& op : block.operators) operators.push_back(operator_object(op));
    blocks.push_back({{"name", block.name},
                      {"first", block.first},
                      {"repeat", block.repeat},
                      {"parameters", block.parameters()},
                      {"operators", std::move(operators)}});
  }
  return json_text({{"schema", "plimsoll/model/1"},
                    {"name", model.name},
                    {"model_type", model.model_type},
                    {"architecture", model.architecture},
                    {"parameters", model.parameters()},
                    {"active_parameters", model.active_parameters()},
                    {"tied_embeddings", model.tied_embeddings},
                    {"blocks", std::move(blocks)},
                    {"assumed", model.assumed},
                    {"unread_keys", model.unread_keys}});
}

}  // namespace plimsoll
