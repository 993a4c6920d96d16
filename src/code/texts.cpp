// Values as text: str(), repr(), format specifications, %.
#include <fmt/format.h>

#include <cmath>

#include "code/interpreter.hpp"
#include "code/library.hpp"
#include "code/torch/torch.hpp"
#include "plimsoll/error.hpp"

namespace plimsoll::code {

namespace {

constexpr std::size_t kMostText = 1 << 16;  ///< of what is written of a value; longer ones end there
constexpr int kMostWidth = 1'000;

std::string real_text(double number) {
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  if (std::isnan(number)) return "nan";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

/// repr() of a text.
std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  std::string made(1, quote);
  for (const char c : text.substr(0, kMostText)) {
    if (c == quote || c == '\\') made += '\\';
    if (c == '\n')
      made += "\\n";
    else
      made += c;
  }
  return made + quote;
}

struct Specification {
  std::string fill = " ";
  char align = '\0', type = '\0';
  bool sign = false, zero = false, commas = false, underscores = false;
  int width = 0, precision = -1;
};

Specification specification_of(const std::string& format) {
  Specification read;
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (format.size() > 1 && is_align(format[1])) {
    read.fill = format.substr(0, 1);
    read.align = format[1];
    at = 2;
  } else if (!format.empty() && is_align(format[0])) {
    read.align = format[at++];
  }
  const auto digits = [&] {
    int number = 0;
    for (; at < format.size() && format[at] >= '0' && format[at] <= '9'; ++at)
      number = std::min(number * 10 + (format[at] - '0'), kMostWidth);
    return number;
  };
  if (at < format.size() && (format[at] == '+' || format[at] == '-' || format[at] == ' ')) read.sign = format[at++] == '+';
  if (at < format.size() && format[at] == '#') ++at;
  if (at < format.size() && format[at] == '0') read.zero = true;
  read.width = digits();
  if (at < format.size() && (format[at] == ',' || format[at] == '_')) (format[at++] == ',' ? read.commas : read.underscores) = true;
  if (at < format.size() && format[at] == '.') {
    ++at;
    read.precision = digits();
  }
  if (at < format.size()) read.type = format[at++];
  return read;
}

std::string grouped(std::string digits, char separator) {
  const std::size_t first = digits.find_first_of("0123456789"), end = digits.find_first_not_of("0123456789", first);
  std::size_t at = end == std::string::npos ? digits.size() : end;
  while (first != std::string::npos && at > first + 3) digits.insert(at -= 3, 1, separator);
  return digits;
}

std::string number_text(Interpreter& interpreter, const Value& value, const Specification& how) {
  const bool real_type = std::string_view("eEfFgG%").find(how.type) != std::string_view::npos && how.type != '\0';
  std::string text;
  if (real_type || (value.is_real() && how.type == '\0' && how.precision >= 0)) {
    const char type = how.type == '\0' ? 'g' : how.type == '%' ? 'f' : how.type;
    const double number = value.as_real() * (how.type == '%' ? 100 : 1);
    text = fmt::format(fmt::runtime(fmt::format("{{:.{}{}}}", how.precision < 0 ? 6 : how.precision, type)), number);
    if (how.type == '%') text += "%";
  } else if (how.type == 'x' || how.type == 'X' || how.type == 'b' || how.type == 'o') {
    text = fmt::format(fmt::runtime(fmt::format("{{:{}}}", how.type)), interpreter.whole(value, "such formats"));
  } else {
    text = interpreter.shown(value);
  }
  if (how.commas) text = grouped(std::move(text), ',');
  if (how.underscores) text = grouped(std::move(text), '_');
  if (how.sign && text.front() != '-') text.insert(0, "+");
  return text;
}

}  // namespace

std::string Interpreter::formatted(const Value& value, const std::string& format) {
  if (torch_->is_tensor(value))
    if (const std::optional<Value> number = torch_->known_number(value, true)) return formatted(*number, format);  // Tensor.__format__: its item()
  if (format.empty()) return shown(value);
  const Specification how = specification_of(format);
  std::string made = value.is_number() ? number_text(*this, value, how) : shown(value);
  if (!value.is_number() && how.precision >= 0) made = made.substr(0, static_cast<std::size_t>(how.precision));
  const std::size_t missing = made.size() < static_cast<std::size_t>(how.width) ? static_cast<std::size_t>(how.width) - made.size() : 0;
  const std::string fill = how.zero && how.align == '\0' ? "0" : how.fill;
  const char align = how.align != '\0' ? how.align : value.is_number() ? '>' : '<';
  const std::size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  return std::string(before, fill[0]) + made + std::string(missing - before, fill[0]);
}

std::string percent_formatted(Interpreter& interpreter, const std::string& format, const Value& arguments) {
  const auto* sequence = arguments.as<SequenceObject>();
  std::vector<Value> values = sequence != nullptr && !sequence->is_list() ? sequence->items : std::vector<Value>{arguments};
  std::string made;
  std::size_t next = 0;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      made += format[i];
      continue;
    }
    const std::size_t start = ++i;
    if (i < format.size() && format[i] == '%') {
      made += '%';
      continue;
    }
    while (i < format.size() && std::string_view("0123456789.+- #").find(format[i]) != std::string_view::npos) ++i;
    if (i >= format.size()) interpreter.raise("ValueError", "incomplete format");
    if (next >= values.size()) interpreter.raise("TypeError", "not enough arguments for format string");
    const Value& value = values[next++];
    const std::string how = format.substr(start, i - start);
    switch (format[i]) {
      case 's':
        made += interpreter.formatted(interpreter.text(interpreter.shown(value)), how);
        break;
      case 'r':
        made += interpreter.written(value);
        break;
      case 'd':
      case 'i':
        made += interpreter.formatted(
            value.is_real() ? Value::integer(static_cast<std::int64_t>(std::fmod(value.as_real(), 0x1p62))) : value, how);
        break;
      default:
        made += interpreter.formatted(value, how + format[i]);
    }
  }
  return made;
}

std::string Interpreter::shown(const Value& value) {
  if (const auto* words = value.as<TextObject>()) return words->text;
  if (auto* instance = value.as<InstanceObject>()) {
    if (const Value* own = instance->type->find(symbol("__str__")))
      return words(call(bind(*own, value, instance->type.get()), std::vector<Value>{}), "str()");
    if (instance->type->is_exception) {
      const Value* arguments = instance->attributes.find(symbol("args"));
      const auto* given = arguments != nullptr ? arguments->as<SequenceObject>() : nullptr;
      if (given != nullptr && given->items.size() == 1) return shown(given->items.front());
      return given != nullptr && !given->items.empty() ? written(*arguments) : std::string();
    }
  }
  return written(value);
}

std::string Interpreter::written(const Value& value) {
  step();
  switch (value.tag()) {
    case Value::Tag::unbound:
    case Value::Tag::none:
      return "None";
    case Value::Tag::ellipsis:
      return "Ellipsis";
    case Value::Tag::not_implemented:
      return "NotImplemented";
    case Value::Tag::boolean:
      return value.as_integer() != 0 ? "True" : "False";
    case Value::Tag::integer:
      return std::to_string(value.as_integer());
    case Value::Tag::real:
      return real_text(value.as_real());
    case Value::Tag::object:
      break;
  }
  if (const auto* words = value.as<TextObject>()) return quoted(words->text);
  const Depth deeper(*this);
  const auto joined = [&](const auto& items, const auto& write) {
    std::string made;
    for (const auto& item : items) {
      const std::string piece = write(item);
      if (piece.empty()) continue;
      if (made.size() > kMostText) return made + ", ...";
      step(static_cast<std::int64_t>(piece.size() / 16));
      made += (made.empty() ? "" : ", ") + piece;
    }
    return made;
  };
  if (const auto* sequence = value.as<SequenceObject>()) {
    const std::string items = joined(sequence->items, [&](const Value& item) { return written(item); });
    if (sequence->kind == SequenceObject::Kind::size) return "torch.Size([" + items + "])";
    if (sequence->is_list()) return "[" + items + "]";
    return "(" + items + (sequence->items.size() == 1 ? ",)" : ")");
  }
  if (const auto* dictionary = value.as<DictionaryObject>())
    return "{" +
           joined(dictionary->entries(),
                  [&](const DictionaryObject::Entry& entry) {
                    if (!entry.key.is_bound()) return std::string();
                    return dictionary->is_set ? written(entry.key) : written(entry.key) + ": " + written(entry.value);
                  }) +
           "}";
  if (const auto* token = value.as<TokenObject>()) return token->kind == TokenObject::Kind::dtype ? "torch." + token->name : token->name;
  if (const auto* range = value.as<RangeObject>())
    return "range(" + std::to_string(range->start) + ", " + std::to_string(range->stop) + ")";
  if (const auto* type = value.as<ClassObject>()) return "<class '" + type->name + "'>";
  if (torch_->is_tensor(value)) return "tensor(...)";
  if (auto* instance = value.as<InstanceObject>()) {
    if (const Value* own = instance->type->find(symbol("__repr__")))
      return words(call(bind(*own, value, instance->type.get()), std::vector<Value>{}), "repr()");
    if (instance->type->is_dataclass)
      return instance->type->name + "(" +
             joined(
                 instance->type->fields,
                 [&](const ClassObject::Field& field) { return names_.text(field.name) + "=" + written(attribute(value, field.name)); }) +
             ")";
  }
  return "<" + type_name(value) + " object>";
}

}  // namespace plimsoll::code
