// The layer graph as DOT and JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "plimsoll/layer_graph.hpp"

namespace plimsoll {
namespace {

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string LayerGraph::to_dot() const {
  std::string dot =
      fmt::format("digraph {} {{\n  rankdir=TB;\n  node [shape=box, fontname=\"Helvetica\"];\n  input [shape=ellipse];\n", quoted(name_));
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    const std::string label = stage.repeat > 1 ? fmt::format("{} x {}", stage.name, stage.repeat) : stage.name;
    dot += fmt::format("  subgraph cluster_{} {{\n    label={};\n", i, quoted(label));
    for (int v = stage.first_vertex; v <= stage.output(); ++v) {
      const Vertex& vertex = vertices_[static_cast<std::size_t>(v)];
      const std::string parameters = vertex.parameters ? fmt::format("\\n{} parameters", with_thousands(vertex.parameters)) : "";
      std::string text = quoted(fmt::format("{}: {}", name_of(vertex.kind), vertex.name));
      text.insert(text.size() - 1, parameters);
      dot += fmt::format("    v{} [label={}];\n", v, text);
    }
    dot += "  }\n";
  }
  for (const Tensor& tensor : tensors_) {
    const std::string from = tensor.from < 0 ? "input" : fmt::format("v{}", tensor.from);
    dot += fmt::format("  {} -> v{} [label=\"{}\"];\n", from, tensor.to, tensor.shape.empty() ? "" : shape_text(tensor.shape));
  }
  return dot + "}\n";
}

std::string LayerGraph::to_json() const {
  using Json = nlohmann::ordered_json;
  Json blocks = Json::array();
  for (const Stage& stage : stages_) {
    Json operators = Json::array();
    for (int v = stage.first_vertex; v <= stage.output(); ++v) {
      const Vertex& vertex = vertices_[static_cast<std::size_t>(v)];
      operators.push_back({{"id", v},
                           {"name", vertex.name},
                           {"kind", name_of(vertex.kind)},
                           {"parameters", vertex.parameters},
                           {"flops_per_position", vertex.flops},
                           {"output", vertex.shape},
                           {"saved_for_backward", vertex.saves}});
    }
    blocks.push_back({{"name", stage.name}, {"repeat", stage.repeat}, {"positions", stage.tokens}, {"operators", std::move(operators)}});
  }
  Json tensors = Json::array();
  for (const Tensor& tensor : tensors_) {
    Json from = tensor.from < 0 ? Json("input") : Json(tensor.from);
    tensors.push_back({{"from", std::move(from)}, {"to", tensor.to}, {"shape", tensor.shape}});
  }
  const Json graph = {{"schema", "plimsoll/graph/1"}, {"model", name_}, {"blocks", std::move(blocks)}, {"tensors", std::move(tensors)}};
  return graph.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll
