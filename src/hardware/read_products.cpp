// Reading the `products` of an accelerator's file.
#include "hardware/read_values.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::hardware {
namespace {

Scaling read_scaling(const JsonValue& value) {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(Scaling::nvfp4); ++i) {
    names.emplace_back(name_of(static_cast<Scaling>(i)));
    if (value.text() == names.back()) return static_cast<Scaling>(i);
  }
  fail("'" + value.text() + "' is no scaling", value.where(), suggest(value.text(), names));
}

std::string read_layout(const JsonValue& value) {
  const std::string& text = value.text();
  if (text != "TN" && text != "NN" && text != "NT" && text != "TT") value.expected("a layout: \"TN\", \"NN\", \"NT\" or \"TT\"");
  return text;
}

/// Power may pass the board's limit: that is what throttles.

ProductKernels::Rate read_rate(const JsonValue& object) {
  const JsonValue type = object["type"];
  ProductKernels::Rate rate{math_type(type, type.text()), {}, read_sourced(object["share"], positive_share_value)};
  if (const auto scalings = object.find("scalings"))
    for (const auto& scaling : scalings->elements()) rate.scalings.push_back(read_scaling(scaling));
  return rate;
}

ProductKernels read_family(const JsonValue& object) {
  ProductKernels family;
  family.name = object["name"].text();
  family.alignment = object["alignment"].integer(1, 16);
  if (const auto layouts = object.find("layouts"))
    for (const auto& layout : layouts->elements()) family.layouts.push_back(read_layout(layout));
  if (const auto grouped = object.find("grouped")) family.grouped = grouped->boolean();
  for (const auto& tile : object["tiles"].elements()) family.tiles.push_back(tile_value(tile));
  if (family.tiles.empty()) object["tiles"].expected("at least one tile");
  family.tiles_source = object["tiles_source"].text();
  family.tiles_per_unit = object["tiles_per_unit"].integer(1, 16);
  if (const auto at_once = object.find("one_block_per_unit")) family.one_block_per_unit = at_once->boolean();
  family.start = read_sourced(object["start"], seconds_value);
  family.feed = read_sourced(object["feed"], bandwidth_value);
  family.store = read_sourced(object["store"], bandwidth_value);
  if (const auto drain = object.find("drain")) family.drain = read_sourced(*drain, bandwidth_value);
  family.power = read_sourced(object["power"], board_powers_value);
  for (const auto& rate : object["rates"].elements()) family.rates.push_back(read_rate(rate));
  return family;
}

}  // namespace

ProductConstants read_products(const JsonValue& object) {
  ProductConstants products;
  products.start = read_sourced(object["start"], seconds_value);
  products.reduction = read_sourced(object["reduction"], seconds_value);
  products.power_elsewhere = read_sourced(object["power_elsewhere"], positive_share_value);
  if (const auto share = object.find("second_wave")) products.second_wave = read_sourced(*share, positive_share_value);
  for (const auto& family : object["kernels"].elements()) products.kernels.push_back(read_family(family));
  const JsonValue convolution = object["convolution"];
  const auto share = [&](std::string_view pass) { return read_sourced(convolution[pass], positive_share_value); };
  products.convolution = {share("forward"), share("input_gradient"), share("weight_gradient")};
  return products;
}

}  // namespace plimsoll::hardware
