// The evaluator: runs a module's text over values that are counted as CPython counts them.
//
// A tensor dies where CPython lets it die. Arguments of a function written in Python move into its frame (the caller keeps none of them);
// those of a library's function live until it returns; a name is bound anew before its old value is dropped; a frame's slots are dropped in
// their order when it returns.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "code/objects.hpp"
#include "code/package.hpp"
#include "code/syntax.hpp"
#include "code/text_module.hpp"

namespace plimsoll::program {
class Tape;
}

namespace plimsoll::code {

/// A Python exception on its way.
struct Raised {
  Value exception;
  Place place;
  const TextModule* module = nullptr;  ///< in whose text the place is
};

/// How much a text may do.
struct Limits {
  std::int64_t steps = 5'000'000;
  int calls = 120;          ///< functions within each other
  int expressions = 1'200;  ///< expressions and statements within each other
};

class Torch;

class Interpreter {
 public:
  /// Of a module's text, which `where` names in messages. Nothing runs yet.
  Interpreter(std::string text, std::string where, Limits limits = {});
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Runs the module's body. Throws Error: what is no Python, what is not known (refused), what Python itself raises.
  void run();
  /// A name of the module. Throws Error: the nearest one.
  Value global(const std::string& name);
  const std::unordered_map<Symbol, Value>& globals() const { return main_->globals; }
  /// The limit of steps holds from here on anew.
  void start_counting() {
    steps_ = 0;
    ++runs_;
  }
  /// How often that was.
  std::int64_t runs() const { return runs_; }
  /// Calls with Python's exceptions turned into Error.
  Value call_from_outside(const Value& function, CallArguments arguments);
  /// A value on a command line, as Python writes it: 12, 1e-5, True, None, "text", [1, 2].
  Value literal(const std::string& text, const std::string& where);

  // ---- texts of packages (imports.cpp) ----
  /// Where imports look for what is no library's. To be told before anything is imported.
  void add_package(std::shared_ptr<const Package> package) { packages_.push_back(std::move(package)); }
  /// The folder of the text that is run: other files there, and in the package that it is of, may be imported.
  void look_in(const std::string& folder);
  /// A text of ours for a module of a package: its names come before those of the package's own text.
  void put_over(const std::string& module, std::string_view text) { over_.emplace(module, text); }
  /// What a package's function of that name is, whichever of its texts writes it.
  void replace_function(const std::string& name, Value native) { replaced_[symbol(name)] = std::move(native); }
  /// What names of libraries that no text tells are: asked before a name is foreign; unbound where it doesn't know, too.
  using Rule = std::function<Value(const std::string& path, const std::string& name)>;
  void set_rule(Rule rule) { rule_ = std::move(rule); }
  /// What `from path import name` binds; of 0 the module. A NamespaceObject that is not known, where nothing is.
  Value imported(const std::string& path, Symbol name);
  /// The same; throws Error: nothing of that name.
  Value imported_or_fail(const std::string& path, const std::string& name);
  /// A module's own name; null where it has none.
  /// `stars`: also what `import *` brings.
  Value* global_of(TextModule& module, Symbol name, bool stars = true);
  Value* own_global_of(TextModule& module, Symbol name, bool stars = true);  ///< whatever is put over it
  void run_pieces(TextModule& module, const std::vector<std::size_t>& pieces);
  /// MODULE.NAME = value, as who patches a package does it.
  void set_global(TextModule& module, Symbol name, Value value);
  void set_global_of_its_own(TextModule& module, Symbol name, Value value);  ///< whatever is put over it
  /// The text of a module of a package, read and indexed; null where there is none.
  TextModule* text_module(const std::string& path);

  // ---- for libraries ----
  Heap& heap() { return heap_; }
  Names& names() { return names_; }
  Symbol symbol(std::string_view text) { return names_.of(text); }
  Torch& torch() { return *torch_; }
  /// Where tensors of the host live: nothing of them is recorded.
  program::Tape& host_tape() { return *host_; }
  Value text(std::string text) { return Value(new TextObject(heap_, std::move(text))); }
  Value list(std::vector<Value> items) { return sequence(SequenceObject::Kind::list, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(SequenceObject::Kind::tuple, std::move(items)); }
  Value sequence(SequenceObject::Kind kind, std::vector<Value> items) { return Value(new SequenceObject(heap_, kind, std::move(items))); }

  Value call(const Value& function, CallArguments arguments);
  Value call(const Value& function, std::vector<Value> positional) { return call(function, CallArguments{std::move(positional), {}}); }
  /// The attribute; unbound where there is none.
  Value attribute_or(const Value& of, Symbol name);
  Value attribute(const Value& of, Symbol name);
  void set_attribute(const Value& of, Symbol name, Value value);
  void erase_attribute(const Value& of, Symbol name);
  bool truth(const Value& value);
  bool equal(const Value& a, const Value& b);
  bool less(const Value& a, const Value& b);
  Value binary(Operator op, const Value& a, const Value& b);
  Value item(const Value& of, const Value& key);
  void set_item(const Value& of, const Value& key, Value value);
  void set_slice(SequenceObject& list, const SliceObject& slice, std::vector<Value> values);
  std::int64_t length(const Value& of);
  /// Throws where it cannot be walked.
  Held<IteratorObject> iterate(const Value& of);
  /// All values that iterating gives.
  std::vector<Value> all_of(const Value& of);
  bool contains(const Value& container, const Value& wanted);
  std::string shown(const Value& value);    ///< str()
  std::string written(const Value& value);  ///< repr()
  std::string formatted(const Value& value, const std::string& format);
  bool is_instance(const Value& value, const Value& types);
  ClassObject* class_of(const Value& value);
  std::string type_name(const Value& value);

  std::int64_t whole(const Value& value, const char* what);
  double number(const Value& value, const char* what);
  const std::string& words(const Value& value, const char* what);

  /// Counts work; throws Error (refused) beyond the limit.
  void step(std::int64_t pieces = 1);
  /// Throws Raised: an exception of a builtin class.
  [[noreturn]] void raise(const char* type, const std::string& message);
  /// Throws Error (refused) with the line that runs.
  [[noreturn]] void unknown(const std::string& what, const std::string& hint = {});
  /// Throws Error (refused): a name of a library that is not known.
  [[noreturn]] void foreign(const NamespaceObject& library);
  std::string here() const;

  /// Counts how deep the evaluator's calls stand in each other. Throws Error (refused) beyond the limit.
  class Depth {
   public:
    explicit Depth(Interpreter& interpreter);
    ~Depth() { --depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    int& depth_;
  };

  // ---- making libraries ----
  /// A function of `signature`: "input, weight, bias=, *, eps=, *args, **kwargs"; "=" may be left out by the caller.
  Value native(std::string name, std::string_view signature, Native run);
  /// The same as a method: its first parameter is the instance.
  Value method(std::string name, std::string_view signature, Native run);
  Held<ClassObject> native_class(const std::string& name, std::vector<ClassObject*> bases);
  NamespaceObject& library(const std::string& path);
  ClassObject* builtin_class(const std::string& name);
  const Value& builtin(std::string_view name) { return builtins_[symbol(name)]; }
  void define(Symbol name, Value value) { builtins_[name] = std::move(value); }
  /// Gives a class its method resolution order (C3). Throws Raised where its bases have none.
  void order(ClassObject& type);
  Value make_class(std::string name, std::vector<Value> bases, Attributes attributes, const CallArguments& keywords);
  Value instantiate(ClassObject& type, CallArguments arguments);
  Value made_anew(ClassObject& type, const CallArguments& arguments);
  /// super() of the frame that runs.
  Value super_of_frame();
  /// Binds an attribute found in a class to what it was asked of.
  Value bind(const Value& found, const Value& self, ClassObject* type);

 private:
  friend class ComprehensionIterator;
  struct Frame;
  enum class Completion : std::uint8_t { normal, breaks, continues, returns };

  // expressions (evaluate.cpp)
  Value evaluate(const Expression& expression, Frame& frame);
  Value evaluate_name(const Expression& expression, Frame& frame);
  Value evaluate_call(const Expression& expression, Frame& frame);
  Value evaluate_comparison(const Expression& expression, Frame& frame);
  Value evaluate_formatted(const Expression& expression, Frame& frame);
  Value evaluate_dictionary(const Expression& expression, Frame& frame);
  Value evaluate_comprehension(const Expression& expression, Frame& frame);
  Value evaluate_slice(const Expression& expression, Frame& frame);
  std::vector<Value> evaluate_all(const std::vector<ExpressionPtr>& parts, Frame& frame);
  CallArguments evaluate_arguments(const std::vector<CallArgument>& arguments, Frame& frame);
  bool compare(Operator op, const Value& a, const Value& b);
  Value compared(Operator op, const Value& a, const Value& b);
  Value unary(Operator op, const Value& value);
  Value make_function(const FunctionCode& code, Frame& frame);
  // statements (execute.cpp)
  Completion execute(const Suite& suite, Frame& frame);
  Completion execute(const Statement& statement, Frame& frame);
  Completion execute_each(const Statement& statement, Frame& frame);
  Completion execute_with(const Statement& statement, Frame& frame);
  Completion execute_attempt(const Statement& statement, Frame& frame);
  void execute_augmented(const Statement& statement, Frame& frame);
  void execute_assignment(const Statement& statement, Frame& frame);
  [[noreturn]] void execute_raise(const Statement& statement, Frame& frame);
  void execute_import(const Statement& statement, Frame& frame);
  void execute_import_of_all(const Statement::Import& import, Frame& frame);
  Value execute_class(const Statement& statement, Frame& frame);
  void assign(const Expression& target, Value value, Frame& frame);
  void unpack(const Expression& target, Value value, Frame& frame);
  void erase(const Expression& target, Frame& frame);
  // calls (call.cpp)
  Value call_function(FunctionObject& function, CallArguments arguments);
  Value call_native(NativeObject& function, CallArguments arguments);
  void bind_arguments(FunctionObject& function, CallArguments& arguments, Frame& frame);
  // attributes (attribute.cpp)
  Value instance_attribute(InstanceObject& instance, const Value& of, Symbol name);
  Value super_attribute(WrapperObject& super, Symbol name);
  /// The attribute's name after the class's attribute_map.
  Symbol renamed(ClassObject& type, Symbol name);
  Value class_attribute(ClassObject& type, const Value& of, Symbol name);
  Value partial_attribute(const WrapperObject& partial, const std::string& name);
  Value function_attribute(FunctionObject& function, Symbol name);
  std::vector<std::string> names_of(const Value& value);
  [[noreturn]] void no_attribute(const Value& of, Symbol name);

  std::unique_ptr<program::Tape> host_;  ///< outlives all values
  Limits limits_;
  Names names_;
  Heap heap_;
  std::unordered_map<std::string, std::unique_ptr<TextModule>> modules_;  ///< by their paths; null: there is no text
  std::vector<std::unique_ptr<TextModule>> over_modules_;
  TextModule* main_ = nullptr;
  std::vector<std::shared_ptr<const Package>> packages_;
  std::unordered_map<Symbol, Value> replaced_;
  std::size_t texts_ = 0;  ///< of packages that were read
  std::unordered_map<std::string, std::string_view> over_;
  Rule rule_;
  std::vector<ExpressionPtr> literals_;
  std::unordered_map<Symbol, Value> builtins_;
  std::unordered_map<std::string, Held<NamespaceObject>> libraries_;
  std::unique_ptr<Torch> torch_;
  Frame* frame_ = nullptr;
  std::vector<Value> handled_;  ///< exceptions whose handlers run
  int import_guards_ = 0;       ///< blocks that catch what an import of nothing raises
  std::int64_t steps_ = 0, runs_ = 0;
  int calls_ = 0, depth_ = 0;
  Place place_;                          ///< what ran last
  const TextModule* running_ = nullptr;  ///< in whose text that is
};

}  // namespace plimsoll::code
