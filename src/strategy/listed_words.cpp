#include "strategy/listed_words.hpp"

#include <sstream>

namespace plimsoll::strategy {
namespace {

bool is_listed_word(const std::string& text) {
  return !text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.") == std::string::npos;
}

}  // namespace

std::vector<std::string> listed_words(const std::string& list) {
  std::vector<std::string> words;
  std::istringstream text(list);
  for (std::string word; std::getline(text, word, ',');) {
    word.erase(0, word.find_first_not_of(' '));
    word = word.substr(0, word.find_first_of(" ("));
    if (is_listed_word(word)) words.push_back(word);
  }
  return words.size() > 1 ? words : std::vector<std::string>{};
}

}  // namespace plimsoll::strategy
