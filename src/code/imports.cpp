// Imports: names of libraries that are known, and of the texts of packages.
#include <algorithm>
#include <filesystem>

#include "code/frame.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

constexpr std::size_t kMostModules = 2'000;  ///< texts of packages in one program

std::string slashed(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return path;
}

}  // namespace

void Interpreter::look_in(const std::string& folder) {
  std::filesystem::path root = std::filesystem::absolute(folder).lexically_normal();
  if (root.filename().empty()) root = root.parent_path();
  std::error_code error;
  add_package(open_folder(root.string()));  // what Python puts first on its path
  std::string package;
  while (root.has_filename() && std::filesystem::is_regular_file(root / "__init__.py", error)) {
    package = root.filename().string() + (package.empty() ? "" : "." + package);
    root = root.parent_path();
  }
  main_->package = package;
  // `from nanochat.gpt import …` of a file in nanochat: the folder around it, whether or not it says that it is a package
  add_package(open_folder(package.empty() ? root.parent_path().string() : root.string()));
}

TextModule* Interpreter::text_module(const std::string& path) {
  const auto known = modules_.find(path);
  if (known != modules_.end()) return known->second.get();
  step();
  if (texts_ >= kMostModules) refuse("the code imports more than " + std::to_string(kMostModules) + " modules", here());
  const auto made = [&](std::string text, std::string where, bool is_folder) {
    auto module = std::make_unique<TextModule>();
    module->name = path;
    module->package = is_folder ? path : path.substr(0, std::min(path.rfind('.'), path.size()));
    if (!is_folder && path.find('.') == std::string::npos) module->package.clear();
    module->where = std::move(where);
    module->text = std::move(text);
    module->lazy = true;
    module->index(names_);
    module->globals[symbol("__name__")] = this->text(path);
    module->globals[symbol("__file__")] = this->text(module->where);
    // What a package's own __init__ imports for type checkers is what it imports when it is used.
    if (is_folder) {
      module->globals[symbol("TYPE_CHECKING")] = Value::boolean(true);
      module->binders.erase(symbol("TYPE_CHECKING"));
    }
    return module;
  };
  std::unique_ptr<TextModule> module;
  const bool own = path == "torch" || path.starts_with("torch.");  // known here, or not: its text may lie beside an installed package
  const bool sane = !own && !path.empty() && path.find_first_of("/\\") == std::string::npos && path.find("..") == std::string::npos;
  for (const auto& package : packages_) {
    if (module || !sane) break;
    for (const bool is_folder : {true, false}) {
      const std::string file = slashed(path) + (is_folder ? "/__init__.py" : ".py");
      std::optional<std::string> text = package->read(file);
      if (!text) continue;
      module = made(std::move(*text), package->where(file), is_folder);
      break;
    }
  }
  if (const auto over = over_.find(path); over != over_.end()) {
    auto written = made(std::string(over->second), "plimsoll:" + path, false);
    if (module)
      module->over = over_modules_.emplace_back(std::move(written)).get();
    else
      module = std::move(written);
  }
  if (module) ++texts_;
  return modules_.emplace(path, std::move(module)).first->second.get();
}

Value* Interpreter::global_of(TextModule& module, Symbol name, bool stars) {
  if (module.over != nullptr)
    if (Value* found = own_global_of(*module.over, name, stars)) return found;
  return own_global_of(module, name, stars);
}

void Interpreter::set_global(TextModule& module, Symbol name, Value value) {
  const bool is_over = module.over != nullptr && own_global_of(*module.over, name) != nullptr;
  set_global_of_its_own(is_over ? *module.over : module, name, std::move(value));
}

void Interpreter::set_global_of_its_own(TextModule& module, Symbol name, Value value) {
  (void)own_global_of(module, name);  // what binds it has run: it doesn't bind it again
  module.globals[name] = std::move(value);
}

void Interpreter::run_pieces(TextModule& module, const std::vector<std::size_t>& pieces) {
  struct Unguarded {  // what another text imports is not what a block that waits for ImportError stands around
    int& guards;
    const int before = std::exchange(guards, 0);
    ~Unguarded() { guards = before; }
  } const unguarded{import_guards_};
  for (const std::size_t at : pieces) {
    TextModule::Piece& piece = module.pieces[at];
    if (std::exchange(piece.ran, true)) continue;
    const Depth deeper(*this);
    const FunctionCode& code = module.parsed(piece, names_);
    Frame frame(*this, code);
    (void)execute(code.body, frame);
  }
}

Value* Interpreter::own_global_of(TextModule& module, Symbol name, bool stars) {
  auto found = module.globals.find(name);
  if (!module.lazy) return found == module.globals.end() ? nullptr : &found->second;
  run_pieces(module, std::exchange(module.registrations, {}));
  const auto binders = module.binders.find(name);
  if (binders != module.binders.end()) {
    const std::vector<std::size_t> pieces = std::move(binders->second);
    module.binders.erase(name);
    run_pieces(module, pieces);
  }
  found = module.globals.find(name);
  if (found == module.globals.end() && stars) {
    for (const std::string& path : module.stars) {
      TextModule* const other = text_module(path);
      const Value* of_other = other != nullptr && other != &module ? global_of(*other, name) : nullptr;
      if (of_other == nullptr) continue;
      found = module.globals.insert_or_assign(name, *of_other).first;
      break;
    }
  }
  if (found == module.globals.end()) return nullptr;
  if (const auto* import = found->second.as<ImportObject>()) {
    const Value held = found->second;
    // from . import part: the part, not this name again
    const bool of_itself = import->path == module.name && import->name == name;
    Value made = of_itself ? imported(import->path + "." + names_.text(name), 0) : imported(import->path, import->name);
    found = module.globals.insert_or_assign(name, std::move(made)).first;
  }
  return &found->second;
}

Value Interpreter::imported(const std::string& path, Symbol name) {
  const Depth deeper(*this);
  const std::string whole = name == 0 ? path : path + "." + names_.text(name);
  const auto library_of = [&](const std::string& wanted) {
    const auto known = libraries_.find(wanted);
    return known == libraries_.end() ? nullptr : known->second.get();
  };
  constexpr std::string_view kUpstream = "upstream.";  // a text that is put over another asks for what it is put over
  if (path.starts_with(kUpstream)) {
    TextModule* const below = text_module(path.substr(kUpstream.size()));
    const Value* own = below != nullptr ? own_global_of(*below, name) : nullptr;
    return own != nullptr ? *own : Value(new NamespaceObject(heap_, whole, false));
  }
  if (name != 0)
    if (const NamespaceObject* of = library_of(path)) {
      const auto known = of->attributes.find(name);
      if (known != of->attributes.end()) return known->second;
    }
  if (NamespaceObject* library = library_of(whole)) return Value(library);
  if (rule_ && name != 0)
    if (Value made = rule_(path, names_.text(name)); made.is_bound()) return made;
  TextModule* const of = name == 0 ? nullptr : text_module(path);
  if (of != nullptr)
    if (const Value* own = global_of(*of, name, false)) return *own;
  if (TextModule* module = text_module(whole)) return Value(new ModuleObject(heap_, *module));
  if (of != nullptr)  // what `import *` brings: it may be in any of many files
    if (const Value* own = global_of(*of, name)) return *own;
  return Value(new NamespaceObject(heap_, whole, false));
}

Value Interpreter::imported_or_fail(const std::string& path, const std::string& name) {
  place_ = {0, 0};
  running_ = main_;
  Value made = imported(path, symbol(name));
  const auto* library = made.as<NamespaceObject>();
  if (library == nullptr || library->known) return made;
  fail("has no '" + name + "' in " + path, main_->where);
}

void Interpreter::execute_import(const Statement& s, Frame& frame) {
  TextModule& module = *frame.code.module;
  // A text of a package binds names; what they mean is looked for when they are used.
  const bool waits = module.lazy && frame.code.kind == FunctionCode::Kind::module && import_guards_ == 0;
  for (const Statement::Import& import : s.imports) {
    const std::string path = absolute_path(module, import.path);
    if (path.empty()) raise("ImportError", "attempted relative import beyond top-level package");
    if (import.star) {
      if (!module.lazy) execute_import_of_all(import, frame);  // a lazy text looks there itself
      continue;
    }
    if (waits) {
      assign(*import.target, Value(new ImportObject(heap_, path, import.name)), frame);
      continue;
    }
    Value value = imported(path, import.name);
    if (const auto* library = value.as<NamespaceObject>(); library != nullptr && !library->known && import_guards_ > 0)
      raise("ModuleNotFoundError", "No module named '" + library->name + "'");
    assign(*import.target, std::move(value), frame);
  }
}

void Interpreter::execute_import_of_all(const Statement::Import& import, Frame& frame) {
  TextModule* const other = text_module(absolute_path(*frame.code.module, import.path));
  if (other == nullptr) refuse("import * of '" + import.path + "': which names it brings cannot be seen", here());
  std::vector<Symbol> names;
  for (const auto& binder : other->binders) names.push_back(binder.first);
  for (const auto& global : other->globals) names.push_back(global.first);
  for (const Symbol name : names)
    if (!names_.text(name).starts_with("_"))
      if (const Value* value = global_of(*other, name)) frame.code.module->globals[name] = *value;
}

}  // namespace plimsoll::code
