// Where names are kept: CPython's symtable. A name that is bound in a function is a slot of its frame, in a cell where a function within
// uses it; all others are looked up when they are used.
#include <algorithm>
#include <map>
#include <set>

#include "code/syntax.hpp"

namespace plimsoll::code {

namespace {

/// What a body binds, functions and classes within aside.
class Bindings {
 public:
  Bindings(const FunctionCode& code, std::set<Symbol>& bound, std::set<Symbol>& outermost, std::set<Symbol>& outer)
      : bound_(bound), outermost_(outermost), outer_(outer) {
    for (const Parameter& parameter : code.parameters) bound_.insert(parameter.name);
    for (const Clause& clause : code.clauses) target(clause.target.get());
    for (const StatementPtr& statement : code.body) visit(*statement);
    if (code.kind != FunctionCode::Kind::comprehension)
      for (const ExpressionPtr& part : code.parts) walruses(part.get());
    for (const Symbol name : outermost_) bound_.erase(name);
    for (const Symbol name : outer_) bound_.erase(name);
  }

 private:
  void target(const Expression* expression) {
    if (expression == nullptr) return;
    if (expression->kind == Expression::Kind::name) bound_.insert(expression->name);
    const bool holds = expression->kind == Expression::Kind::tuple || expression->kind == Expression::Kind::list ||
                       expression->kind == Expression::Kind::starred;
    if (holds)
      for (const ExpressionPtr& part : expression->parts) target(part.get());
  }

  /// name := value binds in the function around comprehensions.
  void walruses(const Expression* expression) {
    if (expression == nullptr || expression->kind == Expression::Kind::lambda) return;
    if (expression->kind == Expression::Kind::assignment) bound_.insert(expression->name);
    for (const ExpressionPtr& part : expression->parts) walruses(part.get());
    for (const CallArgument& argument : expression->arguments) walruses(argument.value.get());
    if (!expression->function) return;
    for (const ExpressionPtr& part : expression->function->parts) walruses(part.get());
    for (const Clause& clause : expression->function->clauses) {
      walruses(clause.source.get());
      for (const ExpressionPtr& condition : clause.conditions) walruses(condition.get());
    }
  }

  void visit(const Statement& statement) {
    for (const ExpressionPtr& each : statement.targets) target(each.get());
    walruses(statement.value.get());
    for (const ExpressionPtr& context : statement.contexts) walruses(context.get());
    for (const Statement::Import& import : statement.imports) target(import.target.get());
    if (statement.kind == Statement::Kind::scope)
      (statement.outermost ? outermost_ : outer_).insert(statement.scoped.begin(), statement.scoped.end());
    for (const Branch& branch : statement.branches) {
      walruses(branch.condition.get());
      visit(branch.body);
    }
    for (const Handler& handler : statement.handlers) {
      target(handler.name.get());
      visit(handler.body);
    }
    for (const Suite* suite : {&statement.body, &statement.orelse, &statement.final_body}) visit(*suite);
  }
  void visit(const Suite& suite) {
    for (const StatementPtr& statement : suite) visit(*statement);
  }

  std::set<Symbol>&bound_, &outermost_, &outer_;
};

class Scope {
 public:
  Scope(FunctionCode& code, Scope* outer) : code_(code), outer_(outer) {
    if (outer != nullptr) code.module = outer->code_.module;
    const Bindings bindings(code, bound_, outermost_, nonlocal_);
    for (const Parameter& parameter : code.parameters) (void)slot(parameter.name);
  }

  void run() {
    for (Clause& clause : code_.clauses) {
      if (&clause != &code_.clauses.front()) visit(clause.source.get());  // the first is evaluated outside
      visit(clause.target.get());
      for (const ExpressionPtr& condition : clause.conditions) visit(condition.get());
    }
    for (const ExpressionPtr& part : code_.parts) visit(part.get());
    visit(code_.body);
    for (Expression* name : names_)
      if (cells_.count(name->slot) > 0) name->storage = Storage::cell;
    for (const int cell : cells_)
      if (captured_.count(cell) == 0) code_.cells.push_back(cell);
  }

 private:
  bool has_slots() const { return code_.kind != FunctionCode::Kind::module && code_.kind != FunctionCode::Kind::class_body; }

  int slot(Symbol name) {
    const auto [found, made] = slots_.emplace(name, static_cast<int>(code_.slots.size()));
    if (made) code_.slots.push_back(name);
    return found->second;
  }

  /// The slot of a name that this function or one around it binds; -1: neither does.
  int find(Symbol name) {
    if (outermost_.count(name) > 0) return -1;
    const auto known = slots_.find(name);
    if (known != slots_.end()) return known->second;
    if (has_slots() && bound_.count(name) > 0) return slot(name);
    if (!has_slots() && bound_.count(name) > 0) return -1;
    Scope* around = outer_;
    while (around != nullptr && !around->has_slots() && around->code_.kind == FunctionCode::Kind::class_body) around = around->outer_;
    if (around == nullptr) return -1;
    // A class body between hands on what its functions use, without a name for it of its own.
    const int outer = outer_ == around ? around->find(name) : outer_->find_for_inner(name);
    if (outer < 0) return -1;
    return capture(name, outer);
  }

  int find_for_inner(Symbol name) {
    const auto known = slots_.find(name);
    if (known != slots_.end()) return known->second;
    if (outer_ == nullptr) return -1;
    const int outer = outer_->code_.kind == FunctionCode::Kind::class_body ? outer_->find_for_inner(name) : outer_->find(name);
    return outer < 0 ? -1 : capture(name, outer);
  }

  int capture(Symbol name, int outer) {
    outer_->cells_.insert(outer);
    const int own = slot(name);
    cells_.insert(own);
    captured_.insert(own);
    code_.captured.push_back({outer, own});
    return own;
  }

  void bind(Expression& name) {
    if (code_.kind == FunctionCode::Kind::module) return;
    name.slot = find(name.name);
    if (name.slot < 0) return;
    name.storage = Storage::local;
    names_.push_back(&name);
  }

  void visit(Expression* expression) {
    if (expression == nullptr) return;
    if (expression->kind == Expression::Kind::name) bind(*expression);
    for (const ExpressionPtr& part : expression->parts) visit(part.get());
    for (CallArgument& argument : expression->arguments) visit(argument.value.get());
    if (expression->kind == Expression::Kind::assignment) bind(*expression) /* of a comprehension: bound in the function around */;
    if (expression->function) within(*expression->function);
  }

  void within(FunctionCode& code) {
    for (const ExpressionPtr& each : code.defaults) visit(each.get());
    if (!code.clauses.empty()) visit(code.clauses.front().source.get());
    Scope(code, this).run();
  }

  void visit(Suite& suite) {
    for (const StatementPtr& statement : suite) visit(*statement);
  }

  void visit(Statement& statement) {
    for (const ExpressionPtr& each : statement.decorators) visit(each.get());
    for (CallArgument& base : statement.bases) visit(base.value.get());
    if (statement.kind == Statement::Kind::augmented) visit(statement.targets.front().get());
    visit(statement.value.get());
    for (std::size_t i = 0; i < statement.contexts.size(); ++i) {
      visit(statement.contexts[i].get());
      visit(statement.targets[i].get());
    }
    if (statement.function) within(*statement.function);
    const bool visited = statement.kind == Statement::Kind::augmented || statement.kind == Statement::Kind::with;
    if (!visited)
      for (const ExpressionPtr& each : statement.targets) visit(each.get());
    for (Statement::Import& import : statement.imports) visit(import.target.get());
    for (Branch& branch : statement.branches) {
      visit(branch.condition.get());
      visit(branch.body);
    }
    visit(statement.body);
    for (Handler& handler : statement.handlers) {
      visit(handler.types.get());
      visit(handler.name.get());
      visit(handler.body);
    }
    visit(statement.orelse);
    visit(statement.final_body);
  }

  FunctionCode& code_;
  Scope* outer_;
  std::set<Symbol> bound_, outermost_, nonlocal_;
  std::map<Symbol, int> slots_;
  std::set<int> cells_, captured_;
  std::vector<Expression*> names_;
};

}  // namespace

void resolve_names(FunctionCode& module, TextModule& of) {
  module.module = &of;
  Scope(module, nullptr).run();
}

}  // namespace plimsoll::code
