// Simple commands: assignments, functions, and what others run.
#include <algorithm>

#include "formats/shell/sink.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

bool among(const std::string& word, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return word == one; });
}
std::string base_name(const std::string& path) { return path.substr(path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1); }
bool is_shell(const std::string& word) { return among(base_name(word), {"bash", "sh", "dash", "zsh"}); }
bool declares(const std::string& word) { return among(word, {"export", "declare", "local", "readonly", "typeset"}); }

}  // namespace

void Shell::note(const std::string& what) {
  if (around_.note && told_.emplace(what, place()).second) around_.note(what, place());
}

Shell::Outcome Shell::assign_alone(const Statement& statement) {
  for (const shell::Assignment& one : statement.assignments) assign(one);
  return substituted_.value_or(Outcome{});
}

/// Assignments of a command alone, and what they hid.
std::vector<std::pair<std::string, std::optional<Shell::Variable>>> Shell::assign_in_front(const Statement& statement) {
  std::vector<std::pair<std::string, std::optional<Variable>>> hidden;
  for (const shell::Assignment& one : statement.assignments) {
    const auto found = state_.variables.find(one.name);
    hidden.emplace_back(one.name, found == state_.variables.end() ? std::nullopt : std::optional<Variable>(found->second));
    assign(one);
    state_.variables[one.name].exported = true;
  }
  return hidden;
}

Shell::Outcome Shell::simple(const Statement& statement) {
  substituted_.reset();
  const Words words = fields_of(statement.words);
  if (words.empty()) return with_redirections(statement.redirections, [&] { return assign_alone(statement); });
  const auto body = [&] {
    if (declares(words.front()) || statement.assignments.empty()) return start(words, statement);
    auto hidden = assign_in_front(statement);
    const Outcome outcome = start(words, statement);
    for (auto one = hidden.rbegin(); one != hidden.rend(); ++one)
      one->second ? (void)(state_.variables[one->first] = *one->second) : (void)state_.variables.erase(one->first);
    return outcome;
  };
  const Outcome outcome = statement.redirections.empty() ? body() : with_redirections(statement.redirections, body);
  if (state_.errors_end && tested_ == 0 && outcome.is_known() && outcome.code != 0 && flow_ == Flow::on) flow_ = Flow::ended;
  return outcome;
}

Shell::Outcome Shell::start(const Words& words, const Statement& statement) {
  if (const auto found = state_.functions.find(words.front()); found != state_.functions.end()) {
    const shell::StatementPtr body = found->second;
    return call(body, words);
  }
  if (const auto outcome = builtin(words, statement)) return *outcome;
  return external(words);
}

Shell::Outcome Shell::call(const shell::StatementPtr& body, const Words& words) {
  const Deeper deeper(*this);
  constexpr int kMostCalls = 60;
  if (++calls_ > kMostCalls) wrong("functions call each other without end");
  const Words arguments(words.begin() + 1, words.end());
  spend_on_state();
  Words outer = std::move(state_.arguments);
  const bool known = state_.arguments_known;
  state_.arguments = arguments;
  state_.arguments_known = true;
  state_.scopes.emplace_back();
  const std::size_t scopes = state_.scopes.size();
  const int loops = loops_;
  loops_ = 0;
  const Outcome outcome = run(*body);
  loops_ = loops;
  if (state_.scopes.size() == scopes) {
    for (auto& [name, hidden] : state_.scopes.back())
      hidden ? (void)(state_.variables[name] = *hidden) : (void)state_.variables.erase(name);
    state_.scopes.pop_back();
  }
  state_.arguments = std::move(outer);
  state_.arguments_known = known;
  --calls_;
  if (flow_ == Flow::returned) flow_ = Flow::on;
  return outcome;
}

// ---- assignments -------------------------------------------------------------------------------------------------------------

void Shell::assign(const shell::Assignment& assignment) {
  if (assignment.array) return assign_array(assignment);
  put(assignment.name, assignment.index, assignment.indexed, assignment.value.raw.empty() ? std::string() : text_of(assignment.value),
      assignment.adds);
}

std::string Shell::shaped(const Variable& variable, std::string value) {
  if (variable.whole_number && !is_unknown(value)) value = arithmetic_text(value);
  if (variable.upper && !is_unknown(value)) value = cased(value, "^^");
  if (variable.lower && !is_unknown(value)) value = cased(value, ",,");
  return value;
}

void Shell::put(const std::string& name, const std::string& index, bool indexed, std::string value, bool adds) {
  spend(value.size() + name.size() + 16);
  if (is_unknown(value))
    if (const std::string* known = given(name)) value = *known;
  if (is_unknown(value) && name_of_unknown(value).empty() && value == mark_of(value)) value = unknown_word(name, told(value));
  std::string key;
  std::int64_t at = 0;
  const bool keyed = state_.variables[name].keyed;
  if (keyed) key = text_of({index, line_});
  if (indexed && !keyed) {
    std::string unknown;
    const auto number = arithmetic(index, unknown);
    if (!number) value = unknown;
    at = number.value_or(0);
    if (at < 0 && !state_.variables[name].values.empty()) at += state_.variables[name].values.rbegin()->first + 1;
  }
  Variable& variable = state_.variables[name];
  const std::string* before = keyed ? variable.at(key) : variable.at(at);
  if (adds && before) {
    const std::string old = *before;
    value = state_.variables[name].whole_number ? arithmetic_text("(" + old + ")+(" + value + ")") : old + value;
  }
  value = shaped(state_.variables[name], std::move(value));
  Variable& target = state_.variables[name];
  if (indexed && !keyed) target.array = true;
  keyed ? target.put(key, std::move(value)) : (void)(target.values[at] = std::move(value));
}

/// NAME=(words), NAME=([key]=word …)
void Shell::assign_array(const shell::Assignment& assignment) {
  Variable made = assignment.adds ? state_.variables[assignment.name] : Variable();
  const Variable& before = state_.variables[assignment.name];
  made.keyed = before.keyed, made.exported = before.exported, made.whole_number = before.whole_number;
  made.array = !made.keyed;
  std::int64_t at = made.values.empty() ? 0 : made.values.rbegin()->first + 1;
  for (const Word& item : assignment.items) {
    const std::size_t close = item.raw[0] == '[' ? item.raw.find("]=") : std::string::npos;
    if (close != std::string::npos) {
      const std::string index = item.raw.substr(1, close - 1), value = text_of({item.raw.substr(close + 2), item.line});
      if (made.keyed) {
        made.put(text_of({index, item.line}), value);
        continue;
      }
      std::string unknown;
      at = arithmetic(index, unknown).value_or(at);
      made.values[at++] = value;
      continue;
    }
    Words fields;
    fields_of(item, fields);
    for (std::string& field : fields) {
      spend(field.size() + 16);
      made.values[at++] = shaped(made, std::move(field));
    }
  }
  state_.variables[assignment.name] = std::move(made);
  spend_on_state();
}

// ---- what others run ---------------------------------------------------------------------------------------------------------

Shell::Outcome Shell::external(const Words& said) {
  Words words = front_;
  for (const std::string& word : said) {
    if (word == mark_of(word) && !word.empty() && name_of_unknown(word) == "@") {
      note("further arguments of the script itself (\"$@\"): none are taken; --set @='…' gives them");
      continue;
    }
    const bool here = word[0] == kUnknown && name_of_unknown(word) == "PWD" && word.compare(end_of_mark(word, 0), 1, "/") == 0;
    words.push_back(here ? "." + word.substr(end_of_mark(word, 0)) : word);
  }
  if (words.size() == front_.size()) return {};
  if (const auto outcome = started_script(words)) return *outcome;
  if (front_.empty())
    if (const auto outcome = pure(words)) return *outcome;
  if (const auto text = around_.printed && front_.empty() ? around_.printed(words) : std::nullopt) {
    print_text(*text);
    return {};
  }
  Started started;
  for (const std::string& word : words) {
    spend(word.size() + 8);
    started.words.push_back(Node::scalar(word, place()));
  }
  for (const auto& [name, variable] : state_.variables)
    if (variable.exported && variable.at(0)) started.environment[name] = *variable.at(0);
  started.files = &state_.files;
  started.folder = state_.folder;
  if (!conditions_.empty()) started.hangs_on = conditions_.back();
  if (in_) started.input = in_->text.substr(std::min(in_->at, in_->text.size()));
  spend_on_state();
  const std::string shown = readable(words.front()).substr(0, 60);
  if (around_.run && around_.run(started)) return {};
  if (out_) print_text(unknown_word("", "what '" + shown + "' prints"));
  std::string name;
  for (const std::string& word : words) name += (name.empty() ? "" : " ") + readable(word);
  return unknown_outcome(name.substr(0, 100), "whether '" + name.substr(0, 80) + "' succeeds");
}

/// Follows a text as a shell of its own does: what is exported is there, and `front` stands before each of its commands.
Shell::Outcome Shell::inner_script(const std::string& text, const Inner& inner) {
  const Deeper deeper(*this);
  const shell::StatementPtr commands = shell::parse_script(text, inner.where, inner.line);
  const Words outer_front = front_;
  const std::string outer_where = where_;
  const int outer_line = line_;
  const Outcome outcome = isolated([&] {
    for (auto one = state_.variables.begin(); one != state_.variables.end();)
      one = one->second.exported ? std::next(one) : state_.variables.erase(one);
    state_.functions.clear();
    state_.arguments = inner.arguments;
    state_.name = inner.name;
    state_.arguments_known = true;
    state_.errors_end = false;
    front_ = inner.front;
    where_ = inner.where;
    return run(*commands);
  });
  front_ = outer_front;
  where_ = outer_where;
  line_ = outer_line;
  return outcome;
}

/// A shell or a script among the words of a command ("srun … bash -c TEXT", "bash run.sh", "./run.sh", "sbatch job.sh").
std::optional<Shell::Outcome> Shell::started_script(const Words& words) {
  const auto from = [&](std::size_t i) {
    return Words(words.begin() + static_cast<std::ptrdiff_t>(std::min(i, words.size())), words.end());
  };
  const auto until = [&](std::size_t i) { return Words(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(i)); };
  if (base_name(words[0]) == "ssh") {
    std::size_t at = 1;
    while (at < words.size() && words[at].size() > 1 && words[at][0] == '-')
      at += words[at].size() == 2 && std::string_view("bcDEeFIiJLlmOopQRSWw").find(words[at][1]) != std::string_view::npos ? 2 : 1;
    std::string text;
    for (const std::string& word : from(at + 1)) text += word + " ";
    if (!text.empty()) return inner_script(text, {{}, {}, where_, line_});
  }
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (base_name(words[i]) == "sbatch") return batch(words, i + 1, until(i));
    if (!is_shell(words[i])) continue;
    std::size_t at = i + 1;
    bool text_follows = false;
    while (at < words.size() && words[at].size() > 1 && (words[at][0] == '-' || words[at][0] == '+')) {
      text_follows = text_follows || (words[at][1] != '-' && words[at].find('c') != std::string::npos);
      const bool named = words[at] == "-o" || words[at] == "+o";
      at += named ? 2 : 1;
      if (text_follows) break;
    }
    if (text_follows && at < words.size())
      return inner_script(words[at], {from(at + 2), until(i), where_, line_, at + 1 < words.size() ? words[at + 1] : words[i]});
    if (at < words.size() && words[at].rfind(".py") == std::string::npos)
      if (const auto text = text_of_file(words[at])) return inner_script(*text, {from(at + 1), until(i), words[at]});
    if (at >= words.size() && in_)
      return inner_script(in_->text.substr(std::min(in_->at, in_->text.size())), {{}, until(i), where_, line_});
  }
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i].ends_with(".sh") || words[i].ends_with(".bash")) {
      const auto text = text_of_file(words[i]);
      if (text && i == front_.size()) return inner_script(*text, {from(i + 1), until(i), words[i]});
      break;
    }
  return std::nullopt;
}

/// sbatch [options] SCRIPT …, sbatch --wrap=TEXT, sbatch <<EOF
Shell::Outcome Shell::batch(const Words& words, std::size_t at, const Words& front) {
  std::string directives = "#SBATCH";
  for (; at < words.size() && words[at].size() > 1 && words[at][0] == '-'; ++at) {
    if (words[at].rfind("--wrap", 0) == 0) {
      const std::size_t equals = words[at].find('=');
      if (around_.batch) around_.batch(directives, place());
      if (equals != std::string::npos) return inner_script(words[at].substr(equals + 1), {{}, front, where_, line_});
      return at + 1 < words.size() ? inner_script(words[at + 1], {{}, front, where_, line_}) : Outcome{};
    }
    directives += " " + words[at];
    const bool joined = words[at].find('=') != std::string::npos || (words[at][1] != '-' && words[at].size() > 2);
    const bool alone =
        among(words[at], {"--parsable", "--exclusive", "--requeue", "--hold", "-H", "-W", "--wait", "-Q", "--quiet", "--overcommit"});
    if (!joined && !alone && at + 1 < words.size()) directives += " " + words[++at];
  }
  std::optional<std::string> text;
  std::string where = where_;
  int line = line_;
  if (at < words.size()) {
    text = text_of_file(words[at]);
    where = words[at];
    line = 1;
    if (!text) note("sbatch " + readable(words[at]).substr(0, 100) + ": not there; give it with --from");
  } else if (in_) {
    text = in_->text.substr(std::min(in_->at, in_->text.size()));
  }
  if (!text) return {};
  if (around_.batch) around_.batch(*text, where);
  if (around_.batch) around_.batch(directives, place());
  Words arguments;
  if (at < words.size()) arguments.assign(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
  return inner_script(*text, {arguments, front, where, line});
}

}  // namespace plimsoll::formats
