// A config.json or a graph file.
#include "plimsoll/model.hpp"

#include "plimsoll/layer_graph.hpp"
#include "reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return plimsoll::fuzz::read(data, size, [](const std::string& text) {
    const plimsoll::Model model = plimsoll::parse_model(text, "input", "input");
    (void)plimsoll::LayerGraph(model).topological_order();
  });
}
