#include "code/text_module.hpp"

#include <algorithm>

namespace plimsoll::code {

namespace {

/// The names that a statement of a module binds or changes, the statements within it included.
class Binders {
 public:
  Binders(TextModule& module, Names& names) : module_(module), names_(names) {}

  void statement(const Statement& outermost) {
    outermost_ = &outermost;
    visit(outermost);
  }

 private:
  void bind(Symbol name) {
    auto& known = module_.binders[name];
    if (known.empty() || known.back() != outermost_) known.push_back(outermost_);
  }

  void target(const Expression* expression) {
    if (expression == nullptr) return;
    switch (expression->kind) {
      case Expression::Kind::name:
        return bind(expression->name);
      case Expression::Kind::attribute:  // table.entry = …, table[key] = …: the table is not whole without it
      case Expression::Kind::subscript:
        return target(expression->parts[0].get());
      case Expression::Kind::tuple:
      case Expression::Kind::list:
      case Expression::Kind::starred:
        for (const ExpressionPtr& part : expression->parts) target(part.get());
        return;
      default:
        return;
    }
  }

  /// TABLE.update(…), TABLE.register(…): a call whose value nobody keeps changes what it is called on.
  void called(const Expression* expression) {
    if (expression == nullptr || expression->kind != Expression::Kind::call) return;
    const Expression* on = expression->parts[0].get();
    while (on->kind == Expression::Kind::attribute || on->kind == Expression::Kind::subscript) on = on->parts[0].get();
    if (on->kind == Expression::Kind::name && on != expression->parts[0].get()) bind(on->name);
  }

  void visit(const Statement& s) {
    if (s.kind == Statement::Kind::expression) called(s.value.get());
    if (s.kind == Statement::Kind::annotated && !s.value) return;
    for (const ExpressionPtr& each : s.targets) target(each.get());
    if (s.value && s.value->kind == Expression::Kind::assignment) bind(s.value->name);
    for (const Statement::Import& import : s.imports) {
      if (import.target) target(import.target.get());
      if (!import.star) continue;
      const std::string path = absolute_path(module_, import.path);
      if (std::find(module_.stars.begin(), module_.stars.end(), path) == module_.stars.end()) module_.stars.push_back(path);
    }
    if (s.kind == Statement::Kind::function || s.kind == Statement::Kind::class_type) return;
    for (const Branch& branch : s.branches) visit(branch.body);
    for (const Handler& handler : s.handlers) visit(handler.body);
    for (const Suite* suite : {&s.body, &s.orelse, &s.final_body}) visit(*suite);
  }
  void visit(const Suite& suite) {
    for (const StatementPtr& each : suite) visit(*each);
  }

  TextModule& module_;
  Names& names_;
  const Statement* outermost_ = nullptr;
};

}  // namespace

void TextModule::index(Names& names) {
  Binders found(*this, names);
  for (const StatementPtr& each : code->body) found.statement(*each);
}

std::string absolute_path(const TextModule& module, const std::string& path) {
  const std::size_t dots = std::min(path.find_first_not_of('.'), path.size());
  if (dots == 0) return path;
  std::string base = module.package;
  for (std::size_t up = 1; up < dots; ++up) {
    const std::size_t dot = base.rfind('.');
    if (dot == std::string::npos) return {};
    base.resize(dot);
  }
  const std::string rest = path.substr(dots);
  return base.empty() ? rest : rest.empty() ? base : base + "." + rest;
}

}  // namespace plimsoll::code
