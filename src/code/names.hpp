// Names of a program as numbers.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace plimsoll::code {

/// A name; 0 is none.
using Symbol = std::uint32_t;

class Names {
 public:
  Names() { (void)of(""); }
  Symbol of(std::string_view text) {
    const auto found = symbols_.find(text);
    if (found != symbols_.end()) return found->second;
    texts_.emplace_back(text);
    const auto symbol = static_cast<Symbol>(texts_.size() - 1);
    symbols_.emplace(texts_.back(), symbol);
    return symbol;
  }
  const std::string& text(Symbol symbol) const { return texts_[symbol]; }

 private:
  std::deque<std::string> texts_;  // a deque, so that the views stay
  std::unordered_map<std::string_view, Symbol> symbols_;
};

}  // namespace plimsoll::code
