// Scripts drawn at random out of what launch scripts are made of: quoting, expansions, control flow, redirections. Each sets what it reads,
// so that nothing of it hangs on an environment, and starts "torchrun" with whatever words come of it.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace plimsoll {

class RandomScript {
 public:
  explicit RandomScript(std::uint32_t seed) : random_(seed) {}

  std::string draw() {
    std::string text = "set -- first 'second one' --third=3\n";
    for (int i = 0; i < kTexts; ++i) text += variable(i) + "=" + quoted_literal() + "\n";
    for (int i = 0; i < kCounts; ++i) text += count(i) + "=" + std::to_string(below(9)) + "\n";
    text += "a0=(one 'two words' three)\na1=()\ndeclare -A m=([x]=1 [y]='two words')\n";
    text += "f0() { torchrun f0 \"$@\" $#; v0=$1; return " + std::to_string(below(2)) + "; }\n";
    functions_ = 1;
    for (int i = 0, n = 3 + below(6); i < n; ++i) text += statement(0);
    return text + launch();
  }

 private:
  static constexpr int kTexts = 4, kCounts = 3, kDeepest = 3;

  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }
  bool one_of(int n) { return below(n) == 0; }
  template <std::size_t N>
  std::string pick(const char* const (&each)[N]) {
    return each[below(static_cast<int>(N))];
  }
  static std::string variable(int i) { return "v" + std::to_string(i); }
  static std::string count(int i) { return "n" + std::to_string(i); }
  std::string text_name() { return variable(below(kTexts)); }
  std::string count_name() { return count(below(kCounts)); }
  std::string array_name() { return one_of(2) ? "a0" : "a1"; }

  // ---- words ----
  std::string bare() {
    return pick({"--bf16", "alpha", "8", "x=1", "a.b",  "--lr", "1e-4", "path/to", "B", "llama-3", "@x",  "a,b",
                 "%",      "+y",    "-", "--",  "end:", "_",    "=",    "[x]",     "*", "?a",      "3#4", "~x"});
  }
  std::string inside_single() {
    return pick({"", "a b", "  ", "$v0", "\\", "\"", "* ?", "#c", "{a,b}", "a;b|c", "$(x)", "`", "\n", "&& <"});
  }
  std::string inside_double() {
    return pick({"", " ", "a b", "*", "'", "\\\\", "\\\"", "\\$v0", "\\`", "#", ";", "x\\y", "{1,2}", "a\nb", "~", "\\\n"});
  }
  std::string quoted_literal() {
    return pick({"alpha", "'two words'", "''", "'a b  c '", "small", "'--x 1 --y'", "'*'", "a.b.c", "Llama-3", "'x:y:z'", "'  lead'",
                 "'a\tb'", "BIG", "file.tar.gz", "'q\"r'"});
  }
  std::string number() { return one_of(2) ? std::to_string(below(12)) : "$" + count_name(); }

  std::string pattern() {
    return pick(
        {"a*", "*a", "?", "[a-c]", "*.", ".*", "*", "l?a", "[!a]*", "\"*\"", "o", "x:", "*' '", "--*", "@(a|l)*", "+([a-z])", "!(small)"});
  }

  std::string expansion(bool in_double) {
    const std::string name = text_name();
    switch (below(22)) {
      case 0:
        return "${" + name + ":-" + (in_double ? bare() : word(1)) + "}";
      case 1:
        return "${" + name + ":+" + (in_double ? bare() : word(1)) + "}";
      case 2:
        return "${" + name + "#" + pattern() + "}";
      case 3:
        return "${" + name + "##" + pattern() + "}";
      case 4:
        return "${" + name + "%" + pattern() + "}";
      case 5:
        return "${" + name + "%%" + pattern() + "}";
      case 6:
        return "${" + name + "/" + pattern() + "/" + pick({"Z", "", "a b", "x-y"}) + "}";
      case 7:
        return "${" + name + "//" + pick({"a", "l", " ", "[a-l]", ".", "\\/", "o*"}) + "/" + pick({"_", "", "QQ"}) + "}";
      case 8:
        return "${" + name + (one_of(2) ? "^^}" : ",,}");
      case 9:
        return "${" + name + (one_of(2) ? "^}" : ",}");
      case 10:
        return "${#" + name + "}";
      case 11:
        return "${" + name + ":" + std::to_string(below(3)) + (one_of(2) ? "" : ":" + std::to_string(below(4))) + "}";
      case 12:
        return "${" + name + ": -2}";
      case 13:
        return "${" + array_name() + "[@]}";
      case 14:
        return "${" + array_name() + "[*]}";
      case 15:
        return "${#" + array_name() + "[@]}";
      case 16:
        return "${" + array_name() + "[" + std::to_string(below(3)) + "]}";
      case 17:
        return "${m[" + pick({"x", "y", "z"}) + "]}";
      case 18:
        return "$((" + arithmetic(2) + "))";
      case 19:
        return "$(" + printing(in_double) + ")";
      case 20:
        return pick({"$1", "$2", "$#", "$@", "$*", "${@:2}", "${3}", "${a0[@]:1}", "${a0[@]/o/0}", "${a0[0]^^}", "${v9-none}", "${v0+set}",
                     "${a0[-1]}"});
      default:
        return in_double && one_of(2) ? "$" + name + "." : "${" + name + "}";
    }
  }
  std::string printing(bool) {
    return pick({"echo ", "printf '%s ' ", "echo -n ", "printf '%s\\n' "}) + word(1) + (one_of(3) ? " " + word(1) : "") +
           (one_of(4) ? " 2>/dev/null" : "");
  }

  std::string double_quoted() {
    std::string text = "\"";
    for (int i = 0, n = below(4); i < n; ++i) text += one_of(2) ? expansion(true) : one_of(2) ? inside_double() : bare();
    return text + "\"";
  }

  std::string word(int depth) {
    std::string text;
    for (int i = 0, n = 1 + below(depth == 0 ? 3 : 2); i < n; ++i) {
      switch (below(depth == 0 ? 10 : 7)) {
        case 0:
          text += "'" + inside_single() + "'";
          break;
        case 1:
        case 2:
          text += depth == 0 ? double_quoted() : "\"" + inside_double() + "$" + text_name() + "\"";
          break;
        case 3:
          text += "\\" + pick({" ", "$", "\"", "'", "*", "a", "\\", ";", "#"});
          break;
        case 4:
          text += "${" + text_name() + "}";
          break;  // letters behind it would lengthen a bare name
        case 5:
        case 6:
          text += bare();
          break;
        case 7:
          text += pick({"{a,b}", "{1..3}", "pre{x,y}post", "{a,{b,c}}", "{3..1}", "$'a\\tb'", "$'it\\'s'", "{a}", "{01..03}"});
          break;
        default:
          text += expansion(false);
      }
    }
    return text[0] == '#' || text[0] == '~' ? "x" + text : text;
  }
  std::string words(int most) {
    std::string text;
    for (int i = 0, n = 1 + below(most); i < n; ++i) text += (i > 0 ? " " : "") + word(0);
    return text;
  }

  // ---- conditions ----
  std::string arithmetic(int depth) {
    if (depth == 0 || one_of(3)) return one_of(2) ? std::to_string(below(20)) : count_name();
    switch (below(8)) {
      case 0:
        return "(" + arithmetic(depth - 1) + ")";
      case 1:
        return arithmetic(depth - 1) + " / " + std::to_string(1 + below(5));
      case 2:
        return arithmetic(depth - 1) + " % " + std::to_string(1 + below(5));
      case 3:
        return "-" + arithmetic(0) + " ";
      case 4:
        return "!" + arithmetic(0) + " ";
      case 5:
        return arithmetic(depth - 1) + " ? " + arithmetic(0) + " : " + arithmetic(0);
      default:
        return arithmetic(depth - 1) + pick({"+", " - ", "*", " < ", " >= ", " == ", " != ", " && ", " || ", " & ", "|", " << ", " ^ "}) +
               arithmetic(depth - 1);
    }
  }
  std::string bracket_word() { return one_of(2) ? "$" + text_name() : double_quoted_plain(); }
  std::string double_quoted_plain() { return "\"" + inside_double() + "$" + text_name() + "\""; }

  std::string condition(int depth) {
    switch (below(13)) {
      case 0:
        return "[ \"$" + text_name() + "\" = " + quoted_literal() + " ]";
      case 1:
        return "[ " + number() + pick({" -gt ", " -le ", " -eq ", " -ne "}) + number() + " ]";
      case 2:
        return "[ -n \"$" + text_name() + "\" -a " + number() + " -lt " + number() + " ]";
      case 3:
        return "[[ " + bracket_word() + pick({" == ", " != "}) + pattern() + " ]]";
      case 4:
        return "[[ -z $" + text_name() + " || " + number() + " -ge " + number() + " ]]";
      case 5:
        return "[[ " + bracket_word() + " =~ " + pick({"^a", "l+", "[0-9]", "^(.*)-([0-9])$", "two|small", "\"a.b\"", "x$"}) + " ]]";
      case 6:
        return "(( " + arithmetic(2) + " ))";
      case 7:
        return pick({"true", "false", ":"});
      case 8:
        return depth > 1 ? "true" : condition(depth + 1) + (one_of(2) ? " && " : " || ") + condition(depth + 1);
      case 9:
        return "! " + condition(3);
      case 10:
        return "[[ ! ( " + bracket_word() + " < " + bracket_word() + " ) && -n \"$" + text_name() + "\" ]]";
      case 11:
        return "test " + double_quoted_plain() + " != " + double_quoted_plain();
      default:
        return depth > 1 ? "false" : "f0 " + word(1);
    }
  }

  // ---- commands ----
  std::string redirection() {
    return pick({"", "", "", " 2>&1", " >log", " >> log 2>&1", " 2>/dev/null", " &>out", " </dev/null", " >&2", " 2> >(true)"});
  }
  std::string launch() {
    std::string line = (one_of(6) ? text_name() + "=" + word(1) + " " : "") + "torchrun " + words(4);
    line += one_of(3) ? redirection() + (one_of(2) ? " --tail " + word(1) : "") : "";
    if (one_of(6)) line += pick({" | tee log", " 2>&1 | cat", " & wait", " && torchrun then", " || torchrun never"});
    return line + "\n";
  }
  std::string body(int depth) {
    std::string text;
    for (int i = 0, n = 1 + below(3); i < n; ++i) text += statement(depth + 1);
    return text;
  }
  std::string assignment() {
    switch (below(10)) {
      case 0:
        return text_name() + "+=" + word(0) + "\n";
      case 1:
        return count_name() + "=$((" + arithmetic(2) + "))\n";
      case 2:
        return array_name() + "=(" + words(3) + ")\n";
      case 3:
        return array_name() + "+=(" + words(2) + ")\n";
      case 4:
        return array_name() + "[" + std::to_string(below(4)) + "]=" + word(0) + "\n";
      case 5:
        return "((" + count_name() + pick({"++", "--", "+=2", "*=3", "=4"}) + "))\n";
      case 6:
        return "printf -v " + text_name() + " '%s-%d' " + word(1) + " " + number() + "\n";
      case 7:
        return "IFS=" + pick({",", ":", "' '", "';,'"}) + " read -r" + pick({"a a0", " v0 v1", " v2", "a a1"}) + " <<< " +
               pick({"'a,b,,c'", "\"$v0\"", "'x:y: z :'", "' one  two '", "'a;b,c'"}) + "\n";
      case 8:
        return "m[" + pick({"x", "y", "z", "k$v1"}) + "]=" + word(0) + "\n";
      default:
        return text_name() + "=" + word(0) + "\n";
    }
  }
  std::string statement(int depth) {
    if (depth >= kDeepest) return one_of(2) ? launch() : assignment();
    switch (below(22)) {
      case 0:
      case 1: {
        std::string text = "if " + condition(0) + "; then\n" + body(depth);
        if (one_of(3)) text += "elif " + condition(0) + "; then\n" + body(depth);
        if (one_of(2)) text += "else\n" + body(depth);
        return text + "fi" + (one_of(6) ? redirection() : "") + "\n";
      }
      case 2:
        return "for " + text_name() + " in " + words(3) + "; do\n" + body(depth) + (one_of(4) ? condition(2) + " && break\n" : "") +
               "done\n";
      case 3: {
        const std::string i = "i" + std::to_string(depth);
        return "for ((" + i + "=0; " + i + "<" + std::to_string(1 + below(3)) + "; " + i + "++)); do\n" +
               (one_of(4) ? condition(2) + " && continue\n" : "") + body(depth) + "done\n";
      }
      case 4: {
        const std::string i = "w" + std::to_string(depth);
        return i + "=" + std::to_string(below(3)) + "\n" + (one_of(2) ? "while [ $" + i + " -gt 0 ]" : "until (( " + i + " <= 0 ))") +
               "\ndo " + i + "=$((" + i + " - 1))\n" + body(depth) + "done\n";
      }
      case 5: {
        std::string text = "case " + word(1) + " in\n";
        for (int i = 0, n = 1 + below(3); i < n; ++i)
          text += (one_of(3) ? "(" : "") + pattern() + (one_of(2) ? " | " + pattern() : "") + ")\n" + body(depth) +
                  pick({";;\n", ";;\n", ";&\n", ";;&\n"});
        return text + (one_of(2) ? "*) " + launch() + ";;\n" : "") + "esac\n";
      }
      case 6: {
        const std::string name = "f" + std::to_string(functions_++);
        return (one_of(2) ? name + "() {\n" : "function " + name + " {\n") + "local " + text_name() + "=" + word(1) + " " + count_name() +
               "=1\n" + body(depth) + (one_of(3) ? "return 1\n" : "") + "}\n" + name + " " + words(2) + "\n";
      }
      case 7:
        return "(\n" + body(depth) + ")\n";
      case 8:
        return "{ " + body(depth) + "}\n";
      case 9:
        return condition(0) + (one_of(2) ? " && {\n" : " || {\n") + body(depth) + "}\n";
      case 10:
        return "printf '%s\\n' " + words(2) + " | while read -r " + text_name() + pick({"", " v3"}) + "; do\n" + body(depth) + "done\n";
      case 11:
        return text_name() + "=$(cat <<" + pick({"EOF", "'EOF'"}) + "\n" + document() + "EOF\n)\n";
      case 12:
        return "read -r -d '' " + text_name() + " <<EOF\n" + document() + "EOF\n";
      case 13:
        return "while read -r " + text_name() + "; do\n" + body(depth) + "done <<EOF\n" + document() + "EOF\n";
      case 14:
        return pick({"set -- ", "f0 "}) + words(2) + "\n";
      case 15:
        return pick({"shift\n", "eval \"torchrun \\\"\\$v1\\\" '$n1' x\"\n", "let n0=n1+2\n",
                     "bash -c 'torchrun \"$0\" \"$@\"' $v1 \"$v2\"\n", "torchrun $?\n", "unset v3; v3=z\n", "export v1\n",
                     "# a 'comment\n:\n", "set -o pipefail\n"});
      case 16:
        return assignment();
      case 17:
        return "torchrun \\\n  " + word(0) + " \\\n  " + word(0) + "\n";
      default:
        return one_of(2) ? assignment() : launch();
    }
  }
  std::string document() {
    std::string text;
    for (int i = 0, n = 1 + below(3); i < n; ++i)
      text += pick({"plain text", "a  $v0 b", "'$v1'", "\"${v2:-x}\"", "$((n0 + 1))", "\\$v0 \\\\", "tab\there", "", "${a0[@]}",
                    "x: `echo y`"}) +
              "\n";
    return text;
  }

  std::mt19937 random_;
  int functions_ = 0;
};

}  // namespace plimsoll
