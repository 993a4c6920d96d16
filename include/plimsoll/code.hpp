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

/// A model of transformers, diffusers or timm by the package's own code: the class that a configuration asks for.
struct PackageModel {
  std::string package;          ///< the package's folder, or its wheel
  std::string config;           ///< text of config.json; empty: the defaults of the model type
  std::string where;            ///< names it in messages
  std::string model_type;       ///< where there is no config
  std::string class_name = {};  ///< empty: of config.json's architectures, else the first task that the type has a class for
  std::string folder = {};               ///< where config.json lies: code of the model's own beside it (auto_map) is read there
  std::vector<std::string> beside = {};  ///< folders or wheels of packages that patch its classes (liger_kernel)
  /// "AutoModelForImageTextToText,AutoModelForCausalLM": the first of them that has a class for the type goes before config.json's
  /// architectures.
  std::string auto_classes = {};
  /// Arguments of its forward, as CodeModel's, in the place of what its library's processors or scripts give.
  std::vector<std::string> inputs = {};
  std::vector<std::pair<std::string, std::string>> arguments = {};  ///< of timm.create_model, as CodeModel's
};

/// "12,name=value,…" as it stands behind --args. Throws Error: what is no pair.
std::vector<std::pair<std::string, std::string>> parse_code_arguments(const std::string& text);

/// The model whose parameters that class makes, and whose forward and backward the code tells. Throws Error with file, line and column:
/// what is no Python, what Python itself would raise, what is not modelled (refused).
Model model_of_code(const CodeModel& code);

/// The folders and wheels that a text names, comma between them; none where one is neither.
std::vector<std::string> packages_in(const std::string& text);

/// What is asked by a name: a config.json, its folder, a shipped model or checkpoint, else a model type; by the code of `packages`,
/// transformers' first. Throws Error: a file that cannot be read.
PackageModel package_model(const std::string& name_or_path, const std::vector<std::string>& packages);

/// The model of a configuration by the code of the package. Throws Error, as model_of_code; a model type that the package does not have.
Model model_of_package(const PackageModel& package);

}  // namespace plimsoll
