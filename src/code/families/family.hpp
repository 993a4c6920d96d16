// A family that a text of ours tells, built.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "code/network.hpp"

namespace plimsoll::code {

/// A family's module, and what trainers ask it for.
struct Family {
  std::unique_ptr<BuiltModule> built;
  std::vector<std::string> embeddings;  ///< paths: what get_input_embeddings() answers, of the whole and of stacks within it
};

/// The class of the text (python/families) that the model is of, made with what the Model says. Throws Error: a class that the text does
/// not have (refused), an attention that the class does not have.
Family built_family(const Model& model, const program::RunOptions& options);

}  // namespace plimsoll::code
