// Which modules a program trains where it freezes the others.
#pragma once

#include <string>
#include <vector>

#include "formats/foreign/reading.hpp"

namespace plimsoll::formats {

/// Of axolotl's unfrozen_parameters: says trained_modules once the model is known, the modules all of whose parameters an expression
/// matches. Throws Error then: none is, as beside any adapter; (refused) single rows of a parameter, a module of which only some are.
void train_matched(Reading& reading, const std::vector<std::string>& patterns, const std::string& key, const std::string& where);

/// What a file says of the part of a model that reads images.
struct TowerKeys {
  std::string trains;  ///< the key by which it is trained, or the language model is not ("freeze_vit: false"); empty: the program's own way
  std::string where;
};
/// Of programs that freeze a model's part for images unless they are told otherwise: once the model is known and has one, trained_modules
/// is the language model, or the adapters' targets are its linears; images are told as not modelled. Throws Error (refused) then: it is
/// trained.
void train_language_alone(Reading& reading, const std::string& program, const TowerKeys& keys);

/// Takes linears beside the language model out of the adapters' targets: a name that both have becomes the paths of the language model's.
void spare_towers(Reading& reading, const Model& model);

/// Python's expression as POSIX's extended ones say the same; "^" and "$" around it: a text must match as a whole (re.fullmatch). Throws
/// Error: what they have no word for.
std::string extended_expression(const std::string& python, const std::string& where);

}  // namespace plimsoll::formats
