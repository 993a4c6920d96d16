// Texts that are nearly models: whatever is made of them is a model or an Error, never a crash, a hang or another exception.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "code/network.hpp"
#include "code/scanner.hpp"
#include "devices.hpp"
#include "plimsoll/error.hpp"
#include "plimsoll/strategy.hpp"

namespace plimsoll::code {
namespace {

std::string file(const std::string& name) {
  std::ifstream stream(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/code/data/" + name);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// Words of all texts, to be put in the place of others.
std::vector<std::string> words_of(const std::vector<std::string>& texts) {
  std::vector<std::string> words{"0",  "-1", "1e9", "None",      "True",  "self", "[]",      "()",        "{}", ":",
                                 "**", "*",  "...", "lambda: 0", "yield", "del",  "x[None]", "x[..., 0]", "not"};
  for (const std::string& text : texts)
    for (const Token& token : scan(text, "words"))
      if (!token.text.empty() && token.text.size() < 30) words.emplace_back(token.text);
  return words;
}

/// The text with a few of its words, lines or letters changed.
std::string changed(std::string text, const std::vector<std::string>& words, std::mt19937& random) {
  const auto below = [&](std::size_t most) { return static_cast<std::size_t>(random() % std::max<std::size_t>(most, 1)); };
  for (std::size_t more = 1 + below(3); more > 0; --more) {
    if (below(4) > 0) {  // a word
      const std::vector<Token> tokens = [&] {
        try {
          return scan(text, "text");
        } catch (const Error&) {
          return std::vector<Token>{};
        }
      }();
      if (tokens.empty()) continue;
      const Token& token = tokens[below(tokens.size())];
      const auto at = static_cast<std::size_t>(token.text.data() - text.data());
      text.replace(at, token.text.size(), below(5) == 0 ? std::string() : words[below(words.size())]);
    } else if (below(2) == 0) {  // a line, doubled or left out
      const std::size_t start = text.rfind('\n', below(text.size())) + 1, end = std::min(text.find('\n', start), text.size() - 1) + 1;
      const std::string line = text.substr(start, end - start);
      if (below(2) == 0)
        text.erase(start, line.size());
      else
        text.insert(below(2) == 0 ? start : text.find('\n', below(text.size())) + 1, line);
    } else {
      text[below(text.size())] = static_cast<char>(random() % 128);
    }
  }
  return text;
}

TEST(Mutations, AreModelsOrErrors) {
  const char* wanted = std::getenv("PLIMSOLL_MUTATIONS");
  const int count = wanted != nullptr ? std::atoi(wanted) : 1'500;
  const std::vector<std::string> texts{file("small_gpt.py"), file("small_llama.py"), file("operators.py"), file("language.py")};
  const std::vector<std::string> words = words_of(texts);
  const std::vector<std::string> classes{"Decoder", "Llama", "Operators", "Both"};
  Strategy strategy;
  strategy.micro_batch = 2;
  strategy.seq_len = 16;
  std::mt19937 random(wanted != nullptr ? static_cast<unsigned>(count) : 7);
  int models = 0, errors = 0;
  for (int i = 0; i < count; ++i) {
    const std::size_t which = random() % texts.size();
    CodeModel code{changed(texts[which], words, random), "m.py", classes[which], {}, {"ids:int64[B,S]", "targets:int64[B,S]"}};
    if (classes[which] == "Operators")
      code.arguments = {{"group", std::vector<std::string>{"shapes", "slices", "splits", "masks", "reductions", "norms"}[random() % 6]}};
    try {
      const Model model = model_of_code(code);
      program::Tape tape(program::h100());
      const program::NetworkSource& source = *program::network_source(model);
      const auto root = source.modules(DType::fp32, tape);
      program::materialize(*root, tape, program::Arrival::moved);
      const auto network = source.network({}, *root, tape);
      const program::Batch batch = source.batch(strategy, tape);
      const program::Tensor loss = network->loss(batch);
      tape.backward(loss);
      ++models;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) ADD_FAILURE() << error.what() << "\n" << code.text;
      ++errors;
    }
  }
  EXPECT_GT(models, count / 50);
  EXPECT_GT(errors, count / 50);
}

}  // namespace
}  // namespace plimsoll::code
