// Words of a script expanded as bash does, without executing anything.
#include <algorithm>
#include <cctype>
#include <charconv>

#include "formats/foreign/shell.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr std::size_t kMostExpanded = std::size_t{8} << 20;

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string joined(const std::vector<std::string>& fields) {
  std::string text;
  for (const std::string& field : fields) text += (text.empty() ? "" : " ") + field;
  return text;
}

/// Whole numbers with + − * / % and brackets; anything else has no value.
class Arithmetic {
 public:
  explicit Arithmetic(const std::string& text) : text_(text) {}

  bool evaluate(std::int64_t& value) {
    value = sum();
    skip();
    return good_ && at_ == text_.size();
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::int64_t sum() {
    std::int64_t value = product();
    while (good_) {
      if (take('+')) {
        good_ = !__builtin_add_overflow(value, product(), &value) && good_;
      } else if (take('-')) {
        good_ = !__builtin_sub_overflow(value, product(), &value) && good_;
      } else {
        break;
      }
    }
    return value;
  }
  std::int64_t product() {
    std::int64_t value = atom();
    while (good_) {
      if (take('*')) {
        good_ = !__builtin_mul_overflow(value, atom(), &value) && good_;
      } else if (take('/') || (at_ < text_.size() && text_[at_] == '%')) {
        const bool rest = text_[at_] == '%' && text_[at_ - 1] != '/';
        if (rest) ++at_;
        const std::int64_t by = atom();
        good_ = good_ && by > 0;
        if (good_) value = rest ? value % by : value / by;
      } else {
        break;
      }
    }
    return value;
  }
  std::int64_t atom() {
    if (++depth_ > kMostDepth) good_ = false;
    std::int64_t value = 0;
    if (good_ && take('(')) {
      value = sum();
      good_ = take(')') && good_;
    } else if (good_ && take('-')) {
      value = -atom();
    } else {
      skip();
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      good_ = good_ && error == std::errc();
      at_ = static_cast<std::size_t>(end - text_.data());
    }
    --depth_;
    return value;
  }

  const std::string& text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool good_ = true;
};

std::size_t bracket_end(const std::string& text, std::size_t at, char open, char close) {
  int depth = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (text[i] == open) ++depth;
    if (text[i] == close && --depth == 0) return i + 1;
  }
  return text.size();
}

}  // namespace

/// One word, whatever shell reads it again: its blanks are no blanks.
std::string unknown_word(std::string why) {
  std::replace(why.begin(), why.end(), ' ', kUnknownBlank);
  return kUnknown + why + kUnknown;
}

std::string told(const std::string& unknown) {
  const std::size_t from = unknown.find(kUnknown) + 1;
  std::string why = unknown.substr(from, unknown.find(kUnknown, from) - from);
  std::replace(why.begin(), why.end(), kUnknownBlank, ' ');
  return why;
}

/// NAME=value, NAME+=value, NAME=(words), NAME+=(words)
bool Shell::assign(const std::string& raw) {
  std::size_t end = 0;
  while (end < raw.size() && is_name(raw[end])) ++end;
  if (end == 0 || std::isdigit(static_cast<unsigned char>(raw[0])) != 0) return false;
  const bool adds = raw.compare(end, 2, "+=") == 0;
  if (!adds && (end >= raw.size() || raw[end] != '=')) return false;
  const std::string name = raw.substr(0, end), value = raw.substr(end + (adds ? 2 : 1));
  if (value.size() >= 2 && value.front() == '(' && value.back() == ')') {
    std::vector<std::string> fields;
    Shell inner(where_, [&](const std::vector<Node>& words) {
      for (const Node& word : words) fields.push_back(word.text);
    });
    std::string text = value.substr(1, value.size() - 2);
    std::string line;  // an array's words may stand on several lines, with comments
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '#' && (at == 0 || std::isspace(static_cast<unsigned char>(text[at - 1])) != 0))
        while (at < text.size() && text[at] != '\n') ++at;
      line += at < text.size() && text[at] != '\n' ? text[at] : ' ';
    }
    inner.variables_.swap(variables_);
    inner.expanded_ = expanded_;
    inner.depth_ = depth_;
    inner.follow("\x03 " + line, line_);
    expanded_ = inner.expanded_;
    variables_.swap(inner.variables_);
    if (!fields.empty()) fields.erase(fields.begin());
    if (!adds) variables_[name].clear();
    std::vector<std::string>& all = variables_[name];
    all.insert(all.end(), fields.begin(), fields.end());
  } else {
    std::string text = expand_one(value);
    if (adds && !variables_[name].empty()) text = variables_[name].front() + text;
    variables_[name] = {std::move(text)};
  }
  const std::vector<std::string>& before = variables_[name];
  if (before.size() > 100'000 || (!before.empty() && before.front().size() > kMostExpanded))
    fail("the variable " + name.substr(0, 60) + " grows without end", where_ + ":" + std::to_string(line_));
  return true;
}

std::string Shell::arithmetic(const std::string& expression) {
  std::string text;
  for (std::size_t i = 0; i < expression.size();) {
    const bool dollar = expression[i] == '$';
    const bool braces = dollar && i + 1 < expression.size() && expression[i + 1] == '{';
    if (braces) {
      const std::size_t end = bracket_end(expression, i + 1, '{', '}');
      text += joined(value_of(expression.substr(i + 2, end - i - 3)));
      i = end;
    } else if (dollar || (is_name(expression[i]) && std::isdigit(static_cast<unsigned char>(expression[i])) == 0)) {
      std::size_t end = i + (dollar ? 1 : 0);
      const std::size_t from = end;
      while (end < expression.size() && is_name(expression[end])) ++end;
      text += joined(value_of(expression.substr(from, end - from)));
      i = std::max(end, i + 1);
    } else {
      text += expression[i++];
    }
  }
  if (const std::size_t at = text.find(kUnknown); at != std::string::npos) return text.substr(at, text.find(kUnknown, at + 1) + 1 - at);
  std::int64_t value = 0;
  if (!Arithmetic(text).evaluate(value)) return unknown_word("the arithmetic $((" + expression.substr(0, 60) + "))");
  return std::to_string(value);
}

/// What stands within ${…}: a name, an array, a default.
std::vector<std::string> Shell::value_of(const std::string& expression) {
  if (depth_ > kMostDepth) fail("expansions within expansions without end", where_ + ":" + std::to_string(line_));
  struct Deeper {
    int& depth;
    explicit Deeper(int& d) : depth(d) { ++depth; }
    ~Deeper() { --depth; }
  } deeper(depth_);
  std::size_t end = 0;
  while (end < expression.size() && is_name(expression[end])) ++end;
  const std::string name = expression.substr(0, end), rest = expression.substr(end);
  const auto found = variables_.find(name);
  const bool set = found != variables_.end();
  // A list of further arguments that nobody sets is empty, as in a shell; a single value that is missing is missed.
  const bool further = name.find("ARGS") != std::string::npos || name.find("OPTS") != std::string::npos ||
                       name.find("EXTRA") != std::string::npos || name.find("FLAGS") != std::string::npos;
  if (!set && further && rest.empty()) return {};
  const auto unset = [&] {
    return std::vector<std::string>{unknown_word("the variable " + name.substr(0, 60) + ", which the script does not set,")};
  };
  if (!expression.empty() && expression[0] == '#' && expression.size() > 1) {
    const auto counted = variables_.find(expression.substr(1, expression.find('[') - 1));
    return {counted == variables_.end() ? "0" : std::to_string(counted->second.size())};
  }
  if (rest == "[@]" || rest == "[*]") return set ? found->second : std::vector<std::string>{};
  if (rest.empty())
    return set && !found->second.empty() ? std::vector<std::string>{found->second.front()} : set ? std::vector<std::string>{""} : unset();
  const bool defaults = rest.rfind(":-", 0) == 0 || rest.rfind(":=", 0) == 0 || rest.rfind('-', 0) == 0 || rest.rfind('=', 0) == 0;
  const bool known = set && !found->second.empty() && !found->second.front().empty();
  if (defaults) {
    if (known) return {found->second.front()};
    const std::string text = expand_one(rest.substr(rest[0] == ':' ? 2 : 1));
    if (rest.find('=') < 2) variables_[name] = {text};
    return {text};
  }
  if (rest.rfind(":+", 0) == 0 || rest.rfind('+', 0) == 0) return {known ? expand_one(rest.substr(rest[0] == ':' ? 2 : 1)) : std::string()};
  if (rest.rfind(":?", 0) == 0 || rest.rfind('?', 0) == 0) return known ? std::vector<std::string>{found->second.front()} : unset();
  if (rest.front() == '[' && rest.back() == ']' && set) {
    const std::size_t index = static_cast<std::size_t>(std::atol(expand_one(rest.substr(1, rest.size() - 2)).c_str()));
    return {index < found->second.size() ? found->second[index] : std::string()};
  }
  return {unknown_word("the expansion ${" + expression.substr(0, 60) + "}")};
}

/// Expands what starts with the "$" at `at`; the first and last of its fields join what stands beside it. Returns where it ends.
std::size_t Shell::expand_reference(const std::string& raw, std::size_t at, bool quoted, std::vector<std::string>& fields, bool& open) {
  std::vector<std::string> values;
  std::size_t end = at + 1;
  bool list = false;
  if (raw.compare(at, 3, "$((") == 0) {
    end = bracket_end(raw, at + 1, '(', ')');
    values = {arithmetic(raw.substr(at + 3, end - at - 5))};
  } else if (raw.compare(at, 2, "$(") == 0) {
    end = bracket_end(raw, at + 1, '(', ')');
    values = {unknown_word("a command substitution, which is never executed,")};
  } else if (raw.compare(at, 2, "${") == 0) {
    end = bracket_end(raw, at + 1, '{', '}');
    const std::string inner = raw.substr(at + 2, end - at - 3);
    list = inner.find("[@]") != std::string::npos && inner[0] != '#';
    values = value_of(inner);
  } else {
    while (end < raw.size() && is_name(raw[end])) ++end;
    if (end == at + 1 && end < raw.size()) {  // $@ $? $$
      ++end;
      values = {};
    } else if (end == at + 1) {
      values = {"$"};
    } else {
      values = value_of(raw.substr(at + 1, end - at - 1));
    }
  }
  for (const std::string& value : values) expanded_ += value.size() + 1;
  if (expanded_ > kMostExpanded) fail("the variables unfold without end", where_ + ":" + std::to_string(line_));
  if (quoted && !list) values = {joined(values)};
  bool first = true;
  for (const std::string& value : values) {
    if (quoted) {
      if (!first || !open) fields.emplace_back();
      fields.back() += value;
      open = true;
      first = false;
      continue;
    }
    bool within_unknown = false;
    bool separated = !first;
    for (char c : value) {
      if (c == kUnknown) within_unknown = !within_unknown;
      if (!within_unknown && (c == ' ' || c == '\t' || c == '\n')) {
        separated = true;
        open = false;
        continue;
      }
      if (separated || !open) fields.emplace_back();
      separated = false;
      open = true;
      fields.back() += c;
    }
    first = false;
  }
  return end;
}

std::vector<std::string> Shell::expand(const std::string& raw) {
  std::vector<std::string> fields;
  bool open = false;  // the last field goes on
  const auto add = [&](char c) {
    if (!open) fields.emplace_back();
    open = true;
    fields.back() += c;
  };
  for (std::size_t i = 0; i < raw.size();) {
    const char c = raw[i];
    if (c == '\'') {
      const std::size_t end = std::min(raw.find('\'', i + 1), raw.size());
      if (!open) fields.emplace_back(), open = true;
      fields.back() += raw.substr(i + 1, end - i - 1);
      i = end + 1;
    } else if (c == '"') {
      if (raw.compare(i + 1, 2, "${") != 0 || raw.find("[@]", i) == std::string::npos) {
        if (!open) fields.emplace_back(), open = true;
      }
      for (++i; i < raw.size() && raw[i] != '"';) {
        if (raw[i] == '\\' && i + 1 < raw.size()) {
          if (raw[i + 1] != '\n') add(raw[i + 1]);
          i += 2;
        } else if (raw[i] == '$') {
          i = expand_reference(raw, i, true, fields, open);
        } else if (raw[i] == '`') {
          i = std::min(raw.find('`', i + 1), raw.size() - 1) + 1;
          for (char one : unknown_word("a command substitution, which is never executed,")) add(one);
        } else {
          add(raw[i++]);
        }
      }
      ++i;
    } else if (c == '\\' && i + 1 < raw.size()) {
      if (raw[i + 1] != '\n') add(raw[i + 1]);
      i += 2;
    } else if (c == '$') {
      i = expand_reference(raw, i, false, fields, open);
    } else if (c == '`') {
      i = std::min(raw.find('`', i + 1), raw.size() - 1) + 1;
      for (char one : unknown_word("a command substitution, which is never executed,")) add(one);
    } else {
      add(c);
      ++i;
    }
  }
  return fields;
}

std::string Shell::expand_one(const std::string& raw) { return joined(expand(raw)); }

}  // namespace plimsoll::formats
