#include "formats/foreign/router_loss.hpp"

#include <algorithm>
#include <cstdlib>

#include "model/router_loss.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

/// Of which model types the logits are asked for.
constexpr const char* kAsked = "checkpoint.router_logits";

bool is_among(const std::string& type, const std::string& types) {
  return types == "any" || ("," + types + ",").find("," + type + ",") != std::string::npos;
}

/// model_of_package tells how experts are chosen where a model has some.
bool is_mixture_of_code(const Model& model) {
  return model.source &&
         std::any_of(model.assumed.begin(), model.assumed.end(), [](const std::string& told) { return told.rfind("experts: ", 0) == 0; });
}

}  // namespace

void read_router_loss(Reading& reading, const Node* coefficient, std::string_view key, std::string_view types) {
  if (!coefficient || coefficient->is_null()) return;
  const bool adds = coefficient->word() == "true" || std::strtod(coefficient->word().c_str(), nullptr) > 0;
  if (adds) reading.say(kAsked, std::string(types), std::string(key), coefficient->where);
}

void add_router_loss(const Reading& reading, Model& model) {
  const ForeignKey* asked = reading.find(kAsked);
  if (!asked || !is_among(model.model_type, asked->value)) return;
  if (is_mixture_of_code(model)) refuse("the routers' auxiliary loss of a model that is read from code is not modelled", asked->where);
  model::ask_for_router_logits(model);
}

}  // namespace plimsoll::formats
