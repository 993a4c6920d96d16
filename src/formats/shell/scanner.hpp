// Characters of a script: where lines are, what quotes and brackets hold, words. What $( ) holds is for who knows commands.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/shell/syntax.hpp"

namespace plimsoll::formats::shell {

/// Whether a word ends in front of this character.
bool ends_word(char c);

class Scanner {
 protected:
  Scanner(const std::string& text, const std::string& where, int line, std::size_t at);
  virtual ~Scanner() = default;
  Scanner(const Scanner&) = delete;
  Scanner& operator=(const Scanner&) = delete;

  /// Moves behind the commands that stand here, up to the bracket that ends them.
  virtual void skip_commands() = 0;

  // ---- places and messages ----
  /// Notes where lines end, for a text of several.
  void count_lines();
  int line() const { return line_of(at_); }
  int line_of(std::size_t at) const;
  [[noreturn]] void wrong(const std::string& what) const { wrong(what, at_); }
  [[noreturn]] void wrong(const std::string& what, std::size_t at) const;
  std::string placeholder(std::size_t at) const;
  struct Deeper {
    explicit Deeper(Scanner& scanner);
    ~Deeper() { --scanner_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Scanner& scanner_;
  };

  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool starts(std::string_view what) const { return text_.compare(at_, what.size(), what) == 0; }

  // ---- blanks, and here-documents behind the line that names them ----
  void skip_blanks();
  void skip_newlines();

  // ---- quotes: each moves behind what begins here ----
  void skip_quoted(bool in_double);
  /// $((…)) or ((…)), `front` characters long at its beginning; false, and nothing moved, where its brackets are no arithmetic's.
  bool skip_arithmetic(std::size_t front);
  /// Where the ']' of the index that begins at `at` stands.
  std::size_t index_end(std::size_t at);

  // ---- words ----
  Word word();
  /// The regular expression behind =~: brackets and | are of it.
  Word expression();
  /// The word of the grammar that stands here, if only letters and signs that such words have are in it.
  std::string reserved() const;

  const std::string& text_;
  const std::string& where_;
  std::size_t at_ = 0;
  std::vector<Redirection> pending_;  ///< here-documents that begin at the next line

 private:
  void skip_newline();
  void read_document(const Redirection& one);
  void close(std::string_view quote, bool escapes);
  void skip_double();
  void skip_quoted_in_double();
  void skip_braces(bool in_double);
  void skip_substitution();
  void skip_balanced();

  int first_line_;
  int depth_ = 0;
  std::vector<std::size_t> ends_;        ///< of the lines
  std::set<std::size_t> no_arithmetic_;  ///< where "((" was tried and its brackets are no arithmetic's: each is tried once
};

}  // namespace plimsoll::formats::shell
