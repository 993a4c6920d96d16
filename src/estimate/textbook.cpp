#include "memory/model_states.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/formula.hpp"

namespace plimsoll {

std::array<double, 4> zero_model_states(double parameters, std::int64_t gpus, const StateBytes& bytes) {
  if (gpus < 1) fail("the number of GPUs must be at least 1, not " + std::to_string(gpus));
  const double n = static_cast<double>(gpus);
  const auto [p, g, o] = bytes;
  return {parameters * (p + g + o), parameters * (p + g + o / n), parameters * (p + (g + o) / n), parameters * ((p + g + o) / n)};
}

std::vector<FrameworkStates> framework_states(double parameters, std::int64_t gpus) {
  std::vector<FrameworkStates> all;
  for (const memory::StateRecipe& recipe : memory::state_recipes())
    all.push_back({std::string(recipe.name), parameters * memory::bytes_per_parameter(recipe, gpus)});
  return all;
}

}  // namespace plimsoll
