// A script cut into commands, and the conditions around them.
#include <cctype>

#include "formats/foreign/shell.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::formats {
namespace {

constexpr std::size_t kMostCommands = 50'000;

/// Cuts a script into raw words and the operators between commands.
class Lexer {
 public:
  Lexer(const std::string& text, const std::string& where, int line) : text_(text), where_(where), line_(line) {}

  /// The next command's words; false at the end. `line` is where it starts, `joint` what stands behind it ("\n", ";", "&&" …).
  bool next(std::vector<std::string>& words, int& line) {
    words.clear();
    while (at_ < text_.size()) {
      skip_blanks();
      if (at_ >= text_.size()) break;
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        continue;
      }
      if (c == '\n' || c == ';' || c == '&' || c == '|') {
        const bool newline = c == '\n';
        at_ += at_ + 1 < text_.size() && text_[at_ + 1] == c && !newline ? 2 : 1;
        if (newline) {
          ++line_;
          skip_here_documents();
        }
        if (!words.empty()) return true;
        continue;
      }
      if (c == '<' || c == '>') {
        redirection();
        continue;
      }
      if ((c == '(' || c == ')') && words.empty()) {  // a subshell: its commands are followed like others
        ++at_;
        continue;
      }
      if (c == ')') {
        ++at_;
        words.emplace_back(")");  // ends a pattern of `case`
        return true;
      }
      if (words.empty()) line = line_;
      words.push_back(word());
    }
    return !words.empty();
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == ' ' || text_[at_] == '\t') {
        ++at_;
      } else if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
        at_ += 2;
        ++line_;
      } else {
        return;
      }
    }
  }

  void redirection() {
    const bool here = text_.compare(at_, 2, "<<") == 0 && text_.compare(at_, 3, "<<<") != 0;
    while (at_ < text_.size() && (text_[at_] == '<' || text_[at_] == '>' || text_[at_] == '&' || text_[at_] == '-')) ++at_;
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] == '\n') return;
    std::string name = word();
    if (!here) return;
    std::erase_if(name, [](char c) { return c == '\'' || c == '"' || c == '\\'; });
    here_documents_.push_back(name);
  }

  void skip_here_documents() {
    for (const std::string& end : here_documents_)
      while (at_ < text_.size()) {
        const std::size_t stop = text_.find('\n', at_);
        std::string one = text_.substr(at_, stop == std::string::npos ? stop : stop - at_);
        at_ = stop == std::string::npos ? text_.size() : stop + 1;
        ++line_;
        one.erase(0, one.find_first_not_of('\t'));
        if (one == end) break;
      }
    here_documents_.clear();
  }

  void count_lines(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to && i < text_.size(); ++i) line_ += text_[i] == '\n' ? 1 : 0;
  }

  /// One past what closes the bracket at `at`, quotes within counted as text.
  std::size_t matching(std::size_t at, char open, char close) const {
    int depth = 0;
    for (std::size_t i = at; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '\'' || text_[i] == '"') {
        const char quote = text_[i];
        for (++i; i < text_.size() && text_[i] != quote; ++i)
          if (text_[i] == '\\' && quote == '"') ++i;
      } else if (text_[i] == '#' && open == '(' && i > at && (text_[i - 1] == ' ' || text_[i - 1] == '\t' || text_[i - 1] == '\n')) {
        while (i < text_.size() && text_[i] != '\n') ++i;  // a comment within an array
      } else if (text_[i] == open) {
        ++depth;
      } else if (text_[i] == close && --depth == 0) {
        return i + 1;
      }
    }
    fail(std::string("'") + open + "' has no end", where_ + ":" + std::to_string(line_));
  }

  std::size_t closing_quote(std::size_t at) const {
    const char quote = text_[at];
    for (std::size_t i = at + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\' && quote != '\'') {
        ++i;
      } else if (text_[i] == quote) {
        return i + 1;
      } else if (quote == '"' && text_.compare(i, 2, "$(") == 0) {
        i = matching(i + 1, '(', ')') - 1;
      }
    }
    fail("a quote has no end", where_ + ":" + std::to_string(line_));
  }

  std::string word() {
    const std::size_t from = at_;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\n' || c == ';' || c == '&' || c == '|' || c == '<' || c == '>' || c == ')') break;
      if (c == '\\') {
        at_ += 2;
      } else if (c == '\'' || c == '"' || c == '`') {
        at_ = closing_quote(at_);
      } else if (c == '$' && at_ + 1 < text_.size() && text_[at_ + 1] == '{') {
        at_ = matching(at_ + 1, '{', '}');
      } else if (c == '(') {
        at_ = matching(at_, '(', ')');  // an array, $( ) or $(( ))
      } else {
        ++at_;
      }
    }
    at_ = std::min(at_, text_.size());
    if (at_ == from) ++at_;
    count_lines(from, at_);
    return text_.substr(from, at_ - from);
  }

  const std::string& text_;
  const std::string& where_;
  std::size_t at_ = 0;
  int line_;
  std::vector<std::string> here_documents_;
};

bool is_word(const std::vector<std::string>& words, const char* word) { return !words.empty() && words.front() == word; }

}  // namespace

void Shell::follow(const std::string& text, int first_line) {
  if (++depth_ > kMostDepth) fail("commands within commands without end", where_ + ":" + std::to_string(line_));
  Lexer lexer(text, where_, first_line);
  std::vector<std::string> words;
  int line = first_line;
  while (lexer.next(words, line)) {
    if (++commands_ > kMostCommands) fail("a script of more than " + std::to_string(kMostCommands) + " commands", where_);
    line_ = line;
    command(words, line);
  }
  --depth_;
}

bool Shell::active() const {
  for (const Block& block : blocks_)
    if (!block.active) return false;
  return true;
}

void Shell::command(std::vector<std::string> raw, int line) {
  while (!raw.empty() && control(raw)) {
  }
  if (!raw.empty() && active()) simple(raw, line);
}

/// Takes a word of the shell's grammar off the front; true where another may follow.
bool Shell::control(std::vector<std::string>& raw) {
  const std::string first = raw.front();
  const auto rest = [&] { return std::vector<std::string>(raw.begin() + 1, raw.end()); };
  const bool outer = active();
  if (first == "if" || first == "while" || first == "until") {
    Block block;
    block.kind = first == "if" ? Block::Kind::condition : Block::Kind::loop;
    block.active = block.taken = outer && (first != "if" || holds(rest()));
    blocks_.push_back(block);
    raw.clear();
    return false;
  }
  if (first == "for" || first == "select") {
    blocks_.push_back({Block::Kind::loop, outer, outer, {}});
    if (outer && raw.size() > 3 && raw[2] == "in") variables_[raw[1]] = expand(raw[3]);
    raw.clear();
    return false;
  }
  if (first == "case") {
    blocks_.push_back({Block::Kind::selection, false, false, raw.size() > 1 && outer ? expand_one(raw[1]) : std::string()});
    raw.erase(raw.begin(), raw.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, raw.size())));
    return !raw.empty();  // the first pattern
  }
  if (!blocks_.empty() && blocks_.back().kind == Block::Kind::selection && raw.back() == ")") {
    Block& block = blocks_.back();
    const std::string pattern = expand_one(raw.front());
    block.active = !block.taken && (pattern == block.subject || pattern == "*");
    block.taken = block.taken || block.active;
    raw.clear();
    return false;
  }
  if (first == "elif" || first == "else") {
    if (blocks_.empty()) return raw.erase(raw.begin()), true;
    Block block = blocks_.back();
    blocks_.pop_back();
    block.active = !block.taken && active() && (first == "else" || holds(rest()));
    block.taken = block.taken || block.active;
    blocks_.push_back(block);
    if (first == "elif") return raw.clear(), false;
  } else if (first == "fi" || first == "done" || first == "esac") {
    if (!blocks_.empty()) blocks_.pop_back();
  } else if (first != "then" && first != "do" && first != "{" && first != "}" && first != "!" && first != "function") {
    return false;
  }
  raw.erase(raw.begin());
  return true;
}

/// Where "bash -c TEXT" stands among the words of a command, srun's say; their number: nowhere.
static std::size_t inner_shell(const std::vector<Node>& words) {
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    const std::string& name = words[i].text;
    const bool shell = name == "bash" || name == "sh" || name.ends_with("/bash") || name.ends_with("/sh");
    if (shell && words[i + 1].text.rfind('-', 0) == 0 && words[i + 1].text.find('c') != std::string::npos) return i;
  }
  return words.size();
}

void Shell::simple(const std::vector<std::string>& raw, int line) {
  std::size_t at = 0;
  if (is_word(raw, "export") || is_word(raw, "declare") || is_word(raw, "local") || is_word(raw, "readonly")) at = 1;
  bool only = true;
  for (; at < raw.size(); ++at) {
    if (only && at > 0 && raw[at].rfind('-', 0) == 0 && is_word(raw, "declare")) continue;
    if (!assign(raw[at])) break;
  }
  if (at >= raw.size() || is_word(raw, "export")) return;
  if (raw[at].size() > 2 && raw[at].substr(raw[at].size() - 2) == "()") return;  // the head of a function: its body is followed
  std::vector<Node> words;
  for (; at < raw.size(); ++at)
    for (std::string& one : expand(raw[at])) words.push_back(Node::scalar(std::move(one), where_ + ":" + std::to_string(line)));
  if (words.empty()) return;
  if (words.front().text == "eval") {
    std::string inner;
    for (std::size_t i = 1; i < words.size(); ++i) inner += words[i].text + " ";
    return follow(inner, line);
  }
  if (const std::size_t shell = inner_shell(words); shell < words.size()) {
    const std::vector<Node> outer = prefix_;
    prefix_.insert(prefix_.end(), words.begin(), words.begin() + static_cast<std::ptrdiff_t>(shell));
    follow(words[shell + 2].text, line);
    prefix_ = outer;
    return;
  }
  words.insert(words.begin(), prefix_.begin(), prefix_.end());
  run_(words);
}

/// A condition: what is not known does not hold.
bool Shell::holds(const std::vector<std::string>& raw) {
  std::vector<std::string> words;
  for (const std::string& one : raw) {
    if (one == "[" || one == "[[" || one == "]" || one == "]]" || one == "then" || one == "test") continue;
    words.push_back(one == "!" || one == "==" || one == "=" || one == "!=" ? one : expand_one(one));
  }
  bool inverted = false;
  while (!words.empty() && words.front() == "!") {
    inverted = !inverted;
    words.erase(words.begin());
  }
  const bool tests = !raw.empty() && (raw[0] == "[" || raw[0] == "[[" || raw[0] == "test" || raw[0] == "!");
  if (!tests) return false;
  const bool file = words.size() == 2 && words[0].size() == 2 && words[0][0] == '-' && words[0] != "-z" && words[0] != "-n";
  if (file) return false;
  return test(words) != inverted;
}

bool Shell::test(const std::vector<std::string>& words) {
  const auto known = [](const std::string& word) { return word.find(kUnknown) == std::string::npos; };
  const auto empty = [&](const std::string& word) { return word.empty() || !known(word); };
  if (words.size() == 1) return !empty(words[0]);
  if (words.size() == 2) return words[0] == "-z" ? empty(words[1]) : words[0] == "-n" && !empty(words[1]);
  if (words.size() != 3) return false;
  const std::string &a = words[0], &how = words[1], &b = words[2];
  if (!known(a) || !known(b)) return how == "!=" && a != b;
  if (how == "=" || how == "==") return a == b;
  if (how == "!=") return a != b;
  const long x = std::atol(a.c_str()), y = std::atol(b.c_str());
  if (how == "-eq") return x == y;
  if (how == "-ne") return x != y;
  if (how == "-gt") return x > y;
  if (how == "-ge") return x >= y;
  if (how == "-lt") return x < y;
  return how == "-le" && x <= y;
}

}  // namespace plimsoll::formats
