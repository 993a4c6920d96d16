// Commands followed: lists, conditions, loops; both ways of what is not known.
#include <algorithm>

#include "formats/shell/sink.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr std::size_t kMostEffort = std::size_t{200} << 20;
constexpr std::size_t kMostHeld = std::size_t{16} << 20;  // bytes of variables and files

std::size_t size_of(const shell::State& state) {
  std::size_t size = 64;
  for (const auto& [name, variable] : state.variables) {
    size += name.size() + 32;
    for (const auto& [at, value] : variable.values) size += value.size() + 32;
    for (const auto& [key, value] : variable.entries) size += key.size() + value.size() + 32;
  }
  for (const auto& [path, text] : state.files) size += path.size() + text.size() + 32;
  for (const std::string& argument : state.arguments) size += argument.size() + 32;
  return size + state.scopes.size() * 64 + state.functions.size() * 32;
}

bool starts_with_blank(const std::string& text) { return !text.empty() && (text[0] == ' ' || text[0] == '\t' || text[0] == '\n'); }

}  // namespace

Shell::Shell(std::string where, Surroundings around) : where_(std::move(where)), around_(std::move(around)), effort_(kMostEffort) {}

void Shell::wrong(const std::string& what) const { fail(what, place()); }

void Shell::set(const std::string& name, const std::string& value) {
  Variable variable;
  variable.values[0] = value;
  variable.exported = true;
  state_.variables[name] = variable;
}

void Shell::give(const std::string& name, const std::string& value) {
  given_[name] = value;
  used_[name] = false;
  if (name == "@") {
    if (value.find_first_of("\n;&|<>()") != std::string::npos) fail("'@' is the words of a script's line, and these are more", "--set", "--set '@=--lr 1e-4 --epochs 3'");
    follow("set -- " + value);  // words as bash cuts them
    used_[name] = true;
  }
}

const std::string* Shell::given(const std::string& name) {
  const auto found = given_.find(name);
  if (found == given_.end()) return nullptr;
  used_[name] = true;
  return &found->second;
}

std::vector<std::string> Shell::unused() const {
  std::vector<std::string> names;
  for (const auto& [name, used] : used_)
    if (!used) names.push_back(name);
  return names;
}

std::optional<std::string> Shell::value(const std::string& name) const {
  const auto found = state_.variables.find(name);
  if (found == state_.variables.end() || found->second.at(0) == nullptr) return std::nullopt;
  return *found->second.at(0);
}

void Shell::follow(const std::string& text, int first_line) {
  if (is_unknown(text)) fail("a text with the control character 127", where_);
  try {
    (void)run(*shell::parse_script(text, where_, first_line));
  } catch (const Error& error) {
    if (!error.where().empty()) throw;
    throw Error(error.code(), error.message(), place(), error.hint());  // patterns and efforts know no lines
  }
}

void Shell::spend_on_state() {
  const std::size_t size = size_of(state_);
  if (size > kMostHeld) wrong("the variables grow without end");
  spend(size / 8);
}

void Shell::print_text(const std::string& text) {
  spend(text.size());
  if (out_ == nullptr) return;
  if (out_->size() + text.size() > kMostHeld) wrong("what the script prints grows without end");
  *out_ += text;
}

Shell::Outcome Shell::unknown_outcome(const std::string& name, const std::string& why) {
  if (const std::string* value = given(name)) {
    const bool no = value->empty() || *value == "0" || *value == "false" || *value == "no";
    return {no ? 1 : 0, {}};
  }
  return {1, unknown_word(name, why)};
}

// ---- lists -------------------------------------------------------------------------------------------------------------------

Shell::Outcome Shell::run(const Statement& statement) {
  const Deeper deeper(*this);
  constexpr std::size_t kCommand = 64;
  spend(kCommand);
  line_ = statement.line;
  if (statement.kind == Statement::Kind::simple || statement.redirections.empty()) return state_.last = run_kind(statement);
  return state_.last = with_redirections(statement.redirections, [&] { return run_kind(statement); });
}

Shell::Outcome Shell::run_kind(const Statement& statement) {
  switch (statement.kind) {
    case Statement::Kind::simple:
      return simple(statement);
    case Statement::Kind::sequence:
      return sequence(statement);
    case Statement::Kind::chain:
      return chain(statement);
    case Statement::Kind::pipeline:
      return pipeline(statement);
    case Statement::Kind::group:
      return run(*statement.parts[0]);
    case Statement::Kind::subshell:
      return isolated([&] { return run(*statement.parts[0]); });
    case Statement::Kind::condition:
      return condition(statement);
    case Statement::Kind::loop:
      return loop(statement);
    case Statement::Kind::each:
      return each(statement);
    case Statement::Kind::count:
      return count(statement);
    case Statement::Kind::choice:
      return choice(statement);
    case Statement::Kind::function:
      state_.functions[statement.text] = statement.parts[0];
      return {};
    case Statement::Kind::arithmetic: {
      std::string unknown;
      const auto value = arithmetic(statement.text, unknown);
      return value ? Outcome{*value != 0 ? 0 : 1, {}} : Outcome{1, unknown};
    }
    default:
      return test_brackets(statement.words);
  }
}

Shell::Outcome Shell::sequence(const Statement& statement) {
  Outcome last;
  for (std::size_t i = 0; i < statement.parts.size() && flow_ == Flow::on; ++i) {
    if (statement.joints[i] == "&") {
      isolated([&] { return run(*statement.parts[i]); });
      last = {};
      state_.last = last;
    } else {
      last = run(*statement.parts[i]);
    }
  }
  return last;
}

Shell::Outcome Shell::tested(const Statement& statement) {
  ++tested_;
  Outcome outcome = run(statement);
  --tested_;
  return outcome;
}

/// Runs the body where `why` is not known: once on one of the ways, not at all on the other.
Shell::Outcome Shell::once_or_not(const Outcome& why, const Branch& body) {
  return both(why.unknown, body, [&] { return why; });
}

Shell::Outcome Shell::chain(const Statement& statement) {
  Outcome last = tested(*statement.parts[0]);
  for (std::size_t i = 1; i < statement.parts.size() && flow_ == Flow::on; ++i) {
    const bool conjunction = statement.joints[i - 1] == "&&", final = i + 1 == statement.parts.size();
    const auto next = [&] { return final ? run(*statement.parts[i]) : tested(*statement.parts[i]); };
    if (!last.is_known()) {
      last = once_or_not(last, next);
    } else if ((last.code == 0) == conjunction) {
      last = next();
    }
    state_.last = last;
  }
  return last;
}

Shell::Outcome Shell::pipeline(const Statement& statement) {
  Outcome last;
  if (statement.parts.size() == 1) {
    last = tested(*statement.parts[0]);
  } else {
    const auto input = in_;
    std::string* const outer = out_;
    std::string printed;
    for (std::size_t i = 0; i < statement.parts.size() && flow_ == Flow::on; ++i) {
      if (i > 0) in_ = std::make_shared<shell::Input>(shell::Input{std::move(printed), 0});
      printed.clear();
      out_ = i + 1 == statement.parts.size() ? outer : &printed;
      last = isolated([&] { return run(*statement.parts[i]); });
    }
    out_ = outer;
    in_ = input;
  }
  if (statement.negated && last.is_known()) last.code = last.code == 0 ? 1 : 0;
  return last;
}

/// What is set there is gone behind it; what was written stays.
Shell::Outcome Shell::isolated(const Branch& body) {
  spend_on_state();
  shell::State before = state_;
  const int loops = loops_, calls = calls_;
  loops_ = 0;
  Outcome outcome = body();
  loops_ = loops;
  calls_ = calls;
  before.files = std::move(state_.files);
  state_ = std::move(before);
  flow_ = Flow::on;
  levels_ = 0;
  state_.last = outcome;
  return outcome;
}

// ---- conditions and loops ----------------------------------------------------------------------------------------------------

Shell::Outcome Shell::condition(const Statement& statement) {
  const std::function<Outcome(std::size_t)> from = [&](std::size_t i) -> Outcome {
    if (i + 1 >= statement.parts.size()) return i < statement.parts.size() ? run(*statement.parts[i]) : Outcome{};
    const Outcome holds = tested(*statement.parts[i]);
    if (flow_ != Flow::on) return holds;
    const auto body = [&] { return run(*statement.parts[i + 1]); };
    if (!holds.is_known()) return both(holds.unknown, body, [&] { return from(i + 2); });
    return holds.code == 0 ? body() : from(i + 2);
  };
  return from(0);
}

/// Behind a round of a loop: whether another may follow.
bool Shell::loop_goes_on() {
  if (flow_ == Flow::on) return true;
  if (flow_ != Flow::broken && flow_ != Flow::continued) return false;
  if (--levels_ > 0) return false;
  const bool goes_on = flow_ == Flow::continued;
  flow_ = Flow::on;
  return goes_on;
}

bool Shell::same_as(const shell::State& before) {
  spend_on_state();
  return before.variables == state_.variables && before.arguments == state_.arguments && before.files == state_.files;
}

Shell::Outcome Shell::loop(const Statement& statement) {
  Outcome last;
  ++loops_;
  while (true) {
    spend_on_state();
    const shell::State before = state_;
    const std::size_t read = in_ ? in_->at : 0;
    Outcome holds = tested(*statement.parts[0]);
    if (flow_ != Flow::on && !loop_goes_on()) break;
    if (!holds.is_known()) {
      last = once_or_not(holds, [&] {
        const Outcome outcome = run(*statement.parts[1]);
        (void)loop_goes_on();
        return outcome;
      });
      break;
    }
    if ((holds.code == 0) == statement.negated) break;
    last = run(*statement.parts[1]);
    if (!loop_goes_on()) break;
    if (same_as(before) && read == (in_ ? in_->at : 0)) {  // it ends by what is not known here: a program's outcome, a signal
      last = {1, unknown_word("", "when the loop ends")};
      break;
    }
  }
  --loops_;
  return last;
}

Shell::Outcome Shell::count(const Statement& statement) {
  const auto part = [&](std::size_t i, std::string& unknown) {
    const bool empty = statement.words[i].raw.find_first_not_of(" \t\n") == std::string::npos;
    return empty ? std::optional<std::int64_t>(1) : arithmetic(statement.words[i].raw, unknown);
  };
  Outcome last;
  std::string unknown;
  (void)part(0, unknown);
  ++loops_;
  while (unknown.empty()) {
    const auto holds = part(1, unknown);
    if (!holds) {
      last = once_or_not({1, unknown}, [&] {
        const Outcome outcome = run(*statement.parts[0]);
        (void)loop_goes_on();
        return outcome;
      });
      break;
    }
    if (*holds == 0) break;
    spend_on_state();
    last = run(*statement.parts[0]);
    if (!loop_goes_on()) break;
    (void)part(2, unknown);
  }
  --loops_;
  return last;
}

Shell::Outcome Shell::each(const Statement& statement) {
  const Words items = statement.negated ? fetch_special('@').items : fields_of(statement.words);
  Outcome last;
  ++loops_;
  for (const std::string& item : items) {
    put(statement.text, {}, false, item, false);
    const auto body = [&] {
      const Outcome outcome = run(*statement.parts[0]);
      return outcome;
    };
    if (is_unknown(item) && name_of_unknown(item) == "@") {  // there may be none
      last = once_or_not({1, mark_of(item)}, [&] {
        const Outcome outcome = body();
        (void)loop_goes_on();
        return outcome;
      });
      continue;
    }
    last = body();
    if (!loop_goes_on()) break;
  }
  --loops_;
  return last;
}

Shell::Outcome Shell::choice(const Statement& statement) { return clause(statement, 0, text_of(statement.words[0])); }

/// From the clause `index` on, the first whose pattern the subject is of.
Shell::Outcome Shell::clause(const Statement& statement, std::size_t index, const std::string& subject) {
  for (; index < statement.clauses.size(); ++index) {
    std::string unknown;
    bool found = false;
    for (const Word& word : statement.clauses[index].patterns) {
      const std::string pattern = text_of(word, Mode::pattern);
      const bool any = pattern == "*";
      if (!any && (is_unknown(subject) || is_unknown(pattern))) {
        if (subject == shell::unescaped(pattern)) found = true;
        if (unknown.empty()) unknown = mark_of(is_unknown(subject) ? subject : pattern);
      } else if (any || shell::matches(pattern, subject, effort_)) {
        found = true;
      }
      if (found) break;
    }
    if (found) return clause_body(statement, index, subject);
    if (!unknown.empty())
      return both(
          unknown, [&] { return clause_body(statement, index, subject); }, [&] { return clause(statement, index + 1, subject); });
  }
  return {};
}

Shell::Outcome Shell::clause_body(const Statement& statement, std::size_t index, const std::string& subject) {
  const shell::Clause& one = statement.clauses[index];
  const Deeper deeper(*this);
  Outcome last = run(*one.body);
  if (flow_ != Flow::on) return last;
  if (one.end == ";&" && index + 1 < statement.clauses.size()) return clause_body(statement, index + 1, subject);
  if (one.end == ";;&") return clause(statement, index + 1, subject);
  return last;
}

// ---- both ways ---------------------------------------------------------------------------------------------------------------

/// Follows both, from the same beginning. What they leave differently is not known behind them; one that ends the script is left aside.
Shell::Outcome Shell::both(const std::string& cause, const Branch& yes, const Branch& no) {
  const Deeper deeper(*this);
  spend_on_state();
  const shell::State before = state_;
  const std::size_t printed = out_ ? out_->size() : 0;
  const int loops = loops_, calls = calls_, tests = tested_, levels = levels_;
  conditions_.push_back(cause);
  const Outcome first = yes();
  shell::State after = std::move(state_);
  const Flow flow = flow_;
  const int first_levels = levels_;
  const std::string said = out_ ? out_->substr(printed) : std::string();
  if (out_) out_->resize(printed);
  state_ = before;
  flow_ = Flow::on;
  loops_ = loops, calls_ = calls, tested_ = tests, levels_ = levels;
  const Outcome second = no();
  conditions_.pop_back();
  loops_ = loops, calls_ = calls, tested_ = tests;
  if (flow == Flow::ended && flow_ != Flow::ended) return second;
  if (flow_ == Flow::ended && flow != Flow::ended) {
    state_ = std::move(after);
    flow_ = flow;
    levels_ = first_levels;
    if (out_) *out_ = out_->substr(0, printed) + said;
    return first;
  }
  if (out_ && out_->substr(printed) != said) {
    out_->resize(printed);
    *out_ += cause;
  }
  merge(after, cause);
  if (flow == Flow::on) flow_ = Flow::on;
  if (first.is_known() && second.is_known() && first.code == second.code) return first;
  return {1, cause};
}

/// Makes `state_` what is known after either.
void Shell::merge(const shell::State& other, const std::string& cause) {
  for (const auto& [name, variable] : other.variables) {
    const auto here = state_.variables.find(name);
    if (here != state_.variables.end() && here->second == variable) continue;
    state_.variables[name] = merged(name, variable, here == state_.variables.end() ? Variable() : here->second, cause);
  }
  for (auto& [name, variable] : state_.variables)
    if (other.variables.count(name) == 0) variable = merged(name, Variable(), variable, cause);
  for (const auto& [name, body] : other.functions) state_.functions.emplace(name, body);
  for (const auto& [path, text] : other.files) {
    const auto [here, added] = state_.files.emplace(path, text);
    if (!added && here->second != text) here->second = cause;
  }
  if (state_.arguments != other.arguments) {
    state_.arguments = {cause};
    state_.arguments_known = state_.arguments_known && other.arguments_known;
  }
  if (state_.folder != other.folder) state_.folder = cause;
}

/// A value that one of the ways goes on with is what both begin with and an unknown rest; any other difference leaves nothing known.
Shell::Variable Shell::merged(const std::string& name, const Variable& a, const Variable& b, const std::string& cause) {
  if (const std::string* value = given(name)) {
    Variable known = a.is_set() ? a : b;
    known.values = {{0, *value}};
    known.entries.clear();
    return known;
  }
  const std::string of_cause = name_of_unknown(cause);
  // A variable that the script's arguments decide is not those arguments: "$@" in a launch line is taken as nothing.
  const std::string named = of_cause.empty() || of_cause == kArguments ? unknown_word(name, told(cause)) : cause;
  const Variable &shorter = a.size() < b.size() ? a : b, &longer = a.size() < b.size() ? b : a;
  Variable made = longer;
  if (longer.keyed || shorter.keyed) {
    for (auto& [key, value] : made.entries)
      if (const std::string* other = shorter.at(key); other == nullptr || *other != value) value = named;
    return made;
  }
  if (longer.array && shorter.array) {
    bool begins = true;
    for (const auto& [at, value] : shorter.values) begins = begins && longer.at(at) != nullptr && *longer.at(at) == value;
    made.values = begins ? shorter.values : decltype(made.values)();
    made.values[made.values.empty() ? 0 : made.values.rbegin()->first + 1] = named;
    return made;
  }
  const std::string x = a.at(0) ? *a.at(0) : std::string(), y = b.at(0) ? *b.at(0) : std::string();
  const std::string &front = x.size() < y.size() ? x : y, &whole = x.size() < y.size() ? y : x;
  const bool goes_on = whole.compare(0, front.size(), front) == 0 && starts_with_blank(whole.substr(front.size()));
  made.array = false;
  made.values = {{0, goes_on && a.is_set() && b.is_set() ? front + " " + named : named}};
  return made;
}

// ---- redirections ------------------------------------------------------------------------------------------------------------

Shell::Outcome Shell::with_redirections(const std::vector<shell::Redirection>& redirections, const Branch& body) {
  const auto input = in_;
  std::string* const outer = out_;
  std::string printed, path;
  bool appends = false, to_file = false;
  for (const shell::Redirection& one : redirections) {
    const std::string& sign = one.operation;
    if (sign == "<<" || sign == "<<-") {
      in_ = std::make_shared<shell::Input>(shell::Input{document_of(one), 0});
      continue;
    }
    if (sign == "<" && one.target.raw.compare(0, 2, "<(") == 0) {
      const std::string said = substitution(one.target.raw.substr(2, one.target.raw.size() - 3));
      in_ = std::make_shared<shell::Input>(shell::Input{said.empty() ? said : said + "\n", 0});
      continue;
    }
    const std::string target = text_of(one.target);
    if (sign == "<<<") {
      in_ = std::make_shared<shell::Input>(shell::Input{target + "\n", 0});
    } else if (sign == "<") {
      const auto text = text_of_file(target);
      in_ =
          std::make_shared<shell::Input>(shell::Input{text ? *text : unknown_word("", "what is in " + readable(target).substr(0, 80)), 0});
    } else if (sign == ">&" || sign == "<&") {
      if (sign == ">&" && one.descriptor <= 1 && target == "2") out_ = nullptr;
    } else if (one.descriptor <= 1 && sign != "<>") {  // errors go where they go
      appends = sign == ">>" || sign == "&>>";
      path = path_of(target);
      to_file = path.rfind("/dev/", 0) != 0;
      printed.clear();
      out_ = &printed;
    }
  }
  const Outcome outcome = body();
  out_ = outer;
  in_ = input;
  if (to_file) {
    const auto found = state_.files.find(path);
    const bool beside = appends && found == state_.files.end();
    std::string before = appends && found != state_.files.end() ? found->second : std::string();
    if (beside && around_.read)
      if (const auto text = around_.read(path)) before = *text;
    state_.files[path] = before + printed;
    spend_on_state();
  }
  return outcome;
}

}  // namespace plimsoll::formats
