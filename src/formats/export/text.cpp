// Trees as text.
#include <fmt/format.h>

#include "data/shipped_files.hpp"
#include "formats/export/writer.hpp"
#include "formats/row_reader.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/printable.hpp"

namespace plimsoll::formats {
namespace {

bool is_number(const std::string& text) {
  char* end = nullptr;
  return !text.empty() && (std::strtod(text.c_str(), &end), *end == 0) && text.find_first_of("xXnN") == std::string::npos;
}

std::string scalar_of(const Node& node) {
  if (node.is_null()) return "null";
  const bool plain = !node.quoted && (is_number(node.text) || node.text == "true" || node.text == "false");
  return plain ? node.text : ObjectText::quoted(node.text);
}

std::string list_of(const Node& node) {
  std::string text;
  for (const auto& [unused, value] : node.members) text += (text.empty() ? "" : ", ") + scalar_of(value);
  return "[" + text + "]";
}

Node scalar_in(const std::string& text) { return Node::scalar(text, {}, false); }

bool is_special(const Row& row) { return row.ours == kCode || row.ours == kNothing || row.ours == kRefused; }
bool is_pattern(const Row& row) { return std::string_view(row.foreign).find('*') != std::string_view::npos; }
bool is_old(const Row& row) { return std::string_view(row.remark).rfind("before ", 0) == 0; }

/// Their words for a value, the preferred first.
std::vector<std::string> words_for(const Row& row, const std::string& value) {
  std::vector<std::string> words;
  const std::string rule = row.words;
  if (rule.empty() || rule == "not") return {to_theirs(row, value)};
  for (std::size_t at = 0, comma = 0; comma != std::string::npos; at = comma + 1) {
    comma = rule.find(',', at);
    const std::string word = rule.substr(at, comma == std::string::npos ? comma : comma - at);
    const std::size_t equals = word.find('=');
    const std::string ours = equals == std::string::npos ? word : word.substr(equals + 1);
    if (ours == value && word[0] != '*') words.push_back(word.substr(0, equals));
    if (word == "*") words.push_back(value);
  }
  return words;
}

/// Whether a word of `row` says the same of all rows of that key.
bool fits(const Rows& rows, const Row& row, const std::string& word, const Strategy& s) {
  for (const Row& other : rows) {
    if (&other == &row || std::string_view(other.foreign) != row.foreign) continue;
    try {
      const std::string ours = to_ours(other, word, {});
      if (!ours.empty() && ours != value_of(s, other.ours)) return false;
    } catch (const Error&) {
      return false;
    }
  }
  return true;
}

}  // namespace

Node write_rows(const Rows& rows, const Strategy& resolved) {
  Node tree = Node::table({});
  std::vector<std::string> written;
  for (const Row& row : rows) {
    if (is_special(row) || is_pattern(row) || is_old(row) || tree.find(row.foreign)) continue;
    if (std::find(written.begin(), written.end(), row.ours) != written.end()) continue;
    const auto value = value_of(resolved, row.ours);
    if (!value) continue;
    for (const std::string& word : words_for(row, *value))
      if (!word.empty() && fits(rows, row, word, resolved)) {
        tree.set(row.foreign, scalar_in(word));
        written.emplace_back(row.ours);
        break;
      }
  }
  return tree;
}

std::string yaml_of(const Node& tree, int indent) {
  std::string text;
  const std::string margin(static_cast<std::size_t>(indent) * 2, ' ');
  for (const auto& [name, value] : tree.members) {
    if (value.is_table()) {
      text += margin + name + ":\n" + yaml_of(value, indent + 1);
    } else if (value.is_list() && !value.members.empty() && value.members.front().second.is_table()) {
      text += margin + name + ":\n";
      for (const auto& [unused, one] : value.members) {  // a table's first key stands behind the dash, the others below it
        std::string table = yaml_of(one, indent + 2);
        table.replace(margin.size() + 2, 2, "- ");
        text += table;
      }
    } else {
      text += margin + name + ": " + (value.is_list() ? list_of(value) : scalar_of(value)) + "\n";
    }
  }
  return text;
}

std::string json_of(const Node& tree, int indent) {
  const std::string margin(static_cast<std::size_t>(indent + 1) * 2, ' ');
  std::string text;
  for (const auto& [name, value] : tree.members) {
    text += (text.empty() ? "" : ",\n") + margin + ObjectText::quoted(name) + ": ";
    text += value.is_table() ? json_of(value, indent + 1) : value.is_list() ? list_of(value) : scalar_of(value);
  }
  return text.empty() ? "{}"
                      : "{\n" + text + "\n" + std::string(static_cast<std::size_t>(indent) * 2, ' ') + "}" + (indent == 0 ? "\n" : "");
}

std::string toml_of(const Node& tree) {
  std::string top, sections;
  for (const auto& [name, value] : tree.members) {
    if (!value.is_table()) {
      top += name + " = " + (value.is_list() ? list_of(value) : scalar_of(value)) + "\n";
      continue;
    }
    std::string own;
    Node nested = Node::table({});
    for (const auto& [key, one] : value.members) {
      if (one.is_table()) {
        nested.members.emplace_back(name + "." + key, one);
      } else {
        own += key + " = " + (one.is_list() ? list_of(one) : scalar_of(one)) + "\n";
      }
    }
    if (!own.empty()) sections += "\n[" + name + "]\n" + own;
    if (!nested.members.empty()) sections += toml_of(nested);
  }
  return top + sections;
}

std::string flags_of(const Node& tree) {
  std::string text;
  for (const auto& [name, value] : tree.members) {
    if (value.text == "false") continue;
    std::string flag = name;
    std::replace(flag.begin(), flag.end(), '_', '-');
    text += " \\\n    --" + flag;
    if (value.is_list()) {
      for (const auto& [unused, one] : value.members) text += " " + shell_word(one.text);
    } else if (value.text != "true") {
      text += " " + shell_word(value.text);
    }
  }
  return text;
}

std::string Writing::head() const {
  std::string text;
  for (const std::string& line : comments) text += "# " + printable(line) + "\n";
  return text;
}

std::string torchrun_of(const Writing& w) {
  std::string text = "torchrun --nproc-per-node " + std::to_string(w.per_node());
  if (w.nodes() == 1) return text + " --standalone";
  return text + " --nnodes " + std::to_string(w.nodes()) +
         " --node-rank \"${NODE_RANK:-0}\" --rdzv-backend c10d --rdzv-endpoint \"${MASTER_ADDR:-localhost}:${MASTER_PORT:-29500}\"";
}

std::string environment_of(const Writing& w) {
  std::string text;
  if (w.s.allocator.expandable_segments)
    text += "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True  # segments grow: less reserved than allocated asks for\n";
  if (!w.s.megatron.layer_spec.empty() && (w.s.tp > 1 || w.s.cp > 1))
    text +=
        "export CUDA_DEVICE_MAX_CONNECTIONS=1  # kernels start in the order of their launches, which Megatron's overlap of collectives "
        "needs\n";
  if (w.nodes() > 1) text += "# NCCL_SOCKET_IFNAME, NCCL_IB_HCA: the network between the nodes, where it is not found by itself\n";
  return text;
}

std::string program_text(const std::string& name) {
  const std::string path = "src/formats/export/templates/" + name;
  const auto* file = data::find_shipped_file(path);
  if (!file) throw Error(ErrorCode::internal, "there is no template " + path);
  return std::string(file->text);
}

void write_script(const Writing& w, const std::string& command) {
  w.file("run.sh", "#!/bin/bash\n" + w.head() + "set -euo pipefail\ncd \"$(dirname \"$0\")\"\n" + environment_of(w) + command + "\n");
  w.out.command = "bash run.sh";
}

}  // namespace plimsoll::formats
