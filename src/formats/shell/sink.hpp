// Where expanded characters go: one text, or fields that blanks cut.
#pragma once

#include <string_view>

#include "formats/shell/shell.hpp"

namespace plimsoll::formats {

struct Shell::Deeper {
  explicit Deeper(Shell& shell) : of(shell) {
    constexpr int kMostCalls = 400;  // of this reader in itself
    if (++of.depth_ > kMostCalls) of.wrong("commands within commands without end");
  }
  ~Deeper() { --of.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  Shell& of;
};

class Shell::Sink {
 public:
  Sink(Shell& shell, Mode mode, std::string separators = {}) : shell_(shell), mode_(mode), separators_(std::move(separators)) {
    if (mode != Mode::fields) open();
  }

  bool cuts() const { return mode_ == Mode::fields; }
  /// There is a field, were it empty.
  void open() {
    if (!open_) fields_.emplace_back();
    open_ = true;
  }
  /// The next character begins another field.
  void next() {
    open_ = false;
    between_ = Between::nothing;
  }
  /// A character that stands for itself.
  void quoted(char c) {
    open();
    between_ = Between::nothing;
    const bool keeps = mode_ == Mode::text || (mode_ == Mode::expression ? !means_something(c) : !shell::is_special(c));
    if (!keeps) fields_.back() += '\\';
    fields_.back() += c;
    shell_.spend(1);
  }
  /// A character of the script outside of quotes.
  void plain(char c) {
    open();
    between_ = Between::nothing;
    fields_.back() += c;
    shell_.spend(1);
  }
  void mark(const std::string& text) {
    open();
    between_ = Between::nothing;
    fields_.back() += text;
    shell_.spend(text.size());
  }
  void quoted_text(const std::string& text) {
    each(text, [&](char c) { quoted(c); });
  }
  /// What an expansion outside of quotes gave: blanks cut it, and its * and ? mean something.
  void value(const std::string& text) {
    if (mode_ != Mode::fields) return each(text, [&](char c) { plain(c); });
    each(text, [&](char c) {
      if (separators_.find(c) != std::string::npos) return separate(c);
      if (c == '\\') return quoted(c);
      plain(c);
    });
  }

  std::vector<std::string> take() && { return std::move(fields_); }

 private:
  enum class Between : std::uint8_t { nothing, blanks, sign };

  static bool means_something(char c) { return std::string_view(".[]{}()\\*+?|^$").find(c) != std::string_view::npos; }

  template <class Take>
  void each(const std::string& text, const Take& take) {
    for (std::size_t i = 0; i < text.size();) {
      if (text[i] == kUnknown) {
        const std::size_t end = end_of_mark(text, i);
        mark(text.substr(i, end - i));
        i = end;
      } else {
        take(text[i++]);
      }
    }
  }

  void separate(char c) {
    shell_.spend(1);
    const bool blank = c == ' ' || c == '\t' || c == '\n';
    if (open_) {
      open_ = false;
      between_ = blank ? Between::blanks : Between::sign;
    } else if (!blank) {
      if (between_ != Between::blanks) fields_.emplace_back();  // nothing between two signs is a field
      between_ = Between::sign;
    }
  }

  Shell& shell_;
  Mode mode_;
  std::string separators_;
  std::vector<std::string> fields_;
  bool open_ = false;
  Between between_ = Between::nothing;
};

}  // namespace plimsoll::formats
