// read, mapfile: lines of what a script gives a command.
#include <algorithm>
#include <cctype>

#include "formats/shell/sink.hpp"

namespace plimsoll::formats {

/// The next text up to `end`; `literal` has an x for every character that a backslash protects. `ended`: it was the input that ended.
std::string Shell::next_line(char end, bool raw, bool& ended, std::string& literal) {
  std::string text;
  ended = true;
  const auto add = [&](char c, bool is_literal) {
    text += c;
    literal += is_literal ? 'x' : ' ';
  };
  while (in_->at < in_->text.size()) {
    spend(1);
    const char c = in_->text[in_->at++];
    if (c == end && end != '\0') {
      ended = false;
      break;
    }
    if (c == kUnknown) {
      const std::size_t stop = end_of_mark(in_->text, in_->at - 1);
      for (std::size_t i = in_->at - 1; i < stop; ++i) add(in_->text[i], true);
      in_->at = stop;
    } else if (c == '\\' && !raw) {
      if (in_->at < in_->text.size() && in_->text[in_->at] != '\n') add(in_->text[in_->at], true);
      in_->at = std::min(in_->at + 1, in_->text.size());
    } else {
      add(c, false);
    }
  }
  return text;
}

/// Cuts a text as `read` does, into at most `most` fields, the last of which keeps its separators.
Shell::Words Shell::split(const std::string& text, const std::string& literal, std::size_t most) {
  const std::string signs = separators();
  const auto is_sign = [&](std::size_t i) { return literal[i] != 'x' && signs.find(text[i]) != std::string::npos; };
  const auto is_blank = [&](std::size_t i) { return is_sign(i) && std::isspace(static_cast<unsigned char>(text[i])) != 0; };
  Words fields;
  std::size_t at = 0, size = text.size();
  while (at < size && is_blank(at)) ++at;
  while (size > at && is_blank(size - 1)) --size;
  while (at < size) {
    if (fields.size() + 1 == most) {
      std::size_t end = size;  // one sign behind a last field that has none is no part of it
      if (end > at && is_sign(end - 1)) {
        bool others = false;
        for (std::size_t i = at; i + 1 < end; ++i) others = others || is_sign(i);
        if (!others) --end;
      }
      fields.push_back(text.substr(at, end - at));
      return fields;
    }
    std::size_t end = at;
    while (end < size && !is_sign(end)) ++end;
    fields.push_back(text.substr(at, end - at));
    while (end < size && is_blank(end)) ++end;
    if (end < size && is_sign(end)) ++end;
    while (end < size && is_blank(end)) ++end;
    at = end;
  }
  return fields;
}

void Shell::put_fields(const Words& names, const std::string& text, const std::string& literal) {
  const Words fields = split(text, literal, names.size());
  for (std::size_t i = 0; i < names.size(); ++i) put(names[i], {}, false, i < fields.size() ? fields[i] : std::string(), false);
}

Shell::Outcome Shell::read_words(const Words& words) {
  bool raw = false, array = false;
  char end = '\n';
  std::size_t at = 1;
  for (; at < words.size() && words[at].size() > 1 && words[at][0] == '-'; ++at) {
    std::string flags = words[at].substr(1);
    for (std::size_t i = 0; i < flags.size(); ++i) {
      if (flags[i] == 'r') raw = true;
      if (flags[i] == 'a') array = true;
      if (std::string_view("dpntNuia").find(flags[i]) == std::string_view::npos || flags[i] == 'a') continue;
      const std::string argument = i + 1 < flags.size() ? flags.substr(i + 1) : at + 1 < words.size() ? words[++at] : std::string();
      if (flags[i] == 'd') end = argument.empty() ? '\0' : argument[0];
      break;
    }
  }
  Words names(words.begin() + static_cast<std::ptrdiff_t>(std::min(at, words.size())), words.end());
  const bool whole = names.empty();
  if (whole) names = {"REPLY"};
  const bool open = in_ && [&] {
    for (std::size_t i = in_->text.find(kUnknown, in_->at); i != std::string::npos; i = in_->text.find(kUnknown, end_of_mark(in_->text, i)))
      if (name_of_unknown(in_->text.substr(i)).empty()) return true;
    return false;
  }();
  if (!in_ || open) {  // what is typed, or what a program prints
    for (const std::string& name : names) put(name, {}, false, unknown_word(name, "what is read into " + name.substr(0, 60)), false);
    if (in_) in_->at = in_->text.size();
    return unknown_outcome("read " + names.front(), "whether there is another line to read");
  }
  bool ended = false;
  std::string literal;
  const std::string text = next_line(end, raw, ended, literal);
  if (array) {
    Variable list;
    list.array = true;
    const Words fields = split(text, literal, std::string::npos);
    for (std::size_t i = 0; i < fields.size(); ++i) list.values[static_cast<std::int64_t>(i)] = fields[i];
    state_.variables[names.front()] = std::move(list);
  } else if (whole) {
    put("REPLY", {}, false, text, false);
  } else {
    put_fields(names, text, literal);
  }
  return {ended ? 1 : 0, {}};
}

Shell::Outcome Shell::map_lines(const Words& words) {
  bool cuts = false;
  char end = '\n';
  std::string name = "MAPFILE";
  for (std::size_t at = 1; at < words.size(); ++at) {
    if (words[at] == "-t") {
      cuts = true;
    } else if (words[at] == "-d" && at + 1 < words.size()) {
      end = words[++at].empty() ? '\0' : words[at][0];
    } else if (words[at].size() > 1 && words[at][0] == '-') {
      ++at;
    } else {
      name = words[at];
    }
  }
  Variable list;
  list.array = true;
  if (!in_) {
    list.values[0] = unknown_word(name, "what is read into " + name.substr(0, 60));
  } else {
    while (in_->at < in_->text.size()) {
      bool ended = false;
      std::string literal;
      std::string one = next_line(end, true, ended, literal);
      if (is_unknown(one) && name_of_unknown(one).empty()) one = unknown_word(name, told(one));
      list.values[static_cast<std::int64_t>(list.values.size())] = one + (cuts || ended ? "" : std::string(1, end));
    }
  }
  state_.variables[name] = std::move(list);
  return {};
}

}  // namespace plimsoll::formats
