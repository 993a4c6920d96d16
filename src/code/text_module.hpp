// Texts that make one program: a file, or the files of a package, of which only what is reached is read and run.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "code/objects.hpp"
#include "code/syntax.hpp"

namespace plimsoll::code {

/// One text and its names.
///
/// The text that is asked for runs from its first line to its last, as Python runs it. One of a package (`lazy`) is an index of its
/// outermost statements by the names that they bind; a statement is parsed and runs when one of its names is asked for. What a model does
/// not reach is never run, and may use what nobody knows.
struct TextModule {
  std::string name;     ///< "transformers.models.llama.modeling_llama"
  std::string package;  ///< what one leading dot of an import means: "transformers.models.llama"
  std::string where;    ///< names the text in messages
  std::string text;
  std::unique_ptr<FunctionCode> code;  ///< of the whole; null of a lazy one
  std::unordered_map<Symbol, Value> globals;
  TextModule* over = nullptr;  ///< its names come before this text's own

  /// An outermost statement, with its decorators.
  struct Piece {
    std::size_t start = 0, end = 0;
    int line = 1;
    std::unique_ptr<FunctionCode> code;  ///< null: not parsed yet
    bool ran = false;
  };
  bool lazy = false;
  std::vector<Piece> pieces;
  std::unordered_map<Symbol, std::vector<std::size_t>> binders;  ///< which pieces bind a name, in their order
  std::vector<std::string> stars;                                ///< modules of `from … import *`
  std::vector<std::size_t> registrations;  ///< pieces that call a function for what it does: they run before any name is found

  /// Finds `pieces`, `binders` and `stars`. Throws Error: what is no Python, where it must be parsed to see what it binds.
  void index(Names& names);
  const FunctionCode& parsed(Piece& piece, Names& names);
};

/// A text of a package as the value that `import` binds.
class ModuleObject final : public Object {
 public:
  ModuleObject(Heap& heap, TextModule& module_in) : Object(heap), module(module_in) {}
  TextModule& module;
};

/// What an import of a lazy text will bind when it is used.
class ImportObject final : public Object {
 public:
  ImportObject(Heap& heap, std::string path_in, Symbol name_in) : Object(heap), path(std::move(path_in)), name(name_in) {}
  const std::string path;  ///< absolute
  const Symbol name;       ///< 0: the module itself
};

/// The path that an import means within a text: its leading dots resolved. Empty: more dots than there are folders.
std::string absolute_path(const TextModule& module, const std::string& path);

}  // namespace plimsoll::code
