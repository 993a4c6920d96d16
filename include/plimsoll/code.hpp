/// Models that are read from their own Python code: an nn.Module in a text, read and never run by Python.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "plimsoll/model.hpp"

namespace plimsoll {

/// A class of a Python text, what it is made with, and what its forward is given.
struct CodeModel {
  std::string text;        ///< of the file
  std::string where;       ///< names it in messages: "model.py"
  std::string class_name;  ///< "GPT"
  /// Its arguments, values as Python writes them: {"n_layer", "12"}. Where the class takes one configuration, they are that one's.
  std::vector<std::pair<std::string, std::string>> arguments;
  /// Arguments of its forward, by name: "idx:int64[B,S]". B is the micro-batch, S the sequence length; other sizes are numbers.
  std::vector<std::string> inputs;
  /// Where the file lies: others there may be imported. Empty: the text stands alone.
  std::string folder = {};
};

/// A model of transformers by the package's own code: the class that a configuration asks for.
struct PackageModel {
  std::string package;       ///< the folder of transformers, or its wheel
  std::string config;        ///< text of config.json; empty: the defaults of the model type
  std::string where;         ///< names it in messages
  std::string model_type;    ///< where there is no config
  std::string class_name = {};  ///< empty: of config.json's architectures, else the first task that the type has a class for
  std::string folder = {};      ///< where config.json lies: code of the model's own beside it (auto_map) is read there
  std::vector<std::string> beside = {};  ///< folders or wheels of packages that patch its classes (liger_kernel)
};

/// "12,name=value,…" as it stands behind --args. Throws Error: what is no pair.
std::vector<std::pair<std::string, std::string>> parse_code_arguments(const std::string& text);

/// The model whose parameters that class makes, and whose forward and backward the code tells. Throws Error with file, line and column:
/// what is no Python, what Python itself would raise, what is not modelled (refused).
Model model_of_code(const CodeModel& code);

/// The model of a configuration by the code of the package. Throws Error, as model_of_code; a model type that the package does not have.
Model model_of_package(const PackageModel& package);

}  // namespace plimsoll
