#include "plimsoll/release.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace plimsoll {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Reads a text from its front.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  char front() const { return rest_.empty() ? '\0' : rest_.front(); }
  bool take(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  /// Digits, at most `most`; empty: there are none, or more.
  std::string_view digits(std::size_t most) {
    std::size_t end = 0;
    while (end < rest_.size() && is_digit(rest_[end])) ++end;
    if (end > most) return {};
    const std::string_view taken = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return taken;
  }
  bool take_any_of(std::string_view letters) {
    if (rest_.empty() || letters.find(rest_.front()) == std::string_view::npos) return false;
    rest_.remove_prefix(1);
    return true;
  }
  /// A dot and a digit behind it.
  bool take_dot() { return rest_.size() > 1 && rest_[0] == '.' && is_digit(rest_[1]) && take("."); }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

int number_of(std::string_view digits) {
  int number = 0;
  for (const char c : digits) number = number * 10 + (c - '0');
  return number;
}

/// What Python's packages write behind the numbers (PEP 440, "Version scheme"): pre-, post- and development releases, a build behind "+".
bool is_suffix(std::string_view text) {
  constexpr std::size_t kMostDigits = 9;
  constexpr std::string_view kWords[] = {"alpha", "beta", "rc", "pre", "dev", "post", "a", "b", "c"};
  Cursor at(text);
  while (!at.at_end()) {
    if (at.take("+"))
      return !at.at_end() && std::all_of(at.rest().begin(), at.rest().end(), [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
      });
    const bool dash = at.front() == '-';
    at.take_any_of("._-");
    if (dash && is_digit(at.front())) {  // a build: "6.4.0-47"
      if (at.digits(kMostDigits).empty()) return false;
      continue;
    }
    const auto* word = std::find_if(std::begin(kWords), std::end(kWords), [&](std::string_view one) { return at.take(one); });
    if (word == std::end(kWords)) return false;
    at.digits(kMostDigits);
  }
  return true;
}

constexpr int kYear = 10'000, kMonth = 100;

}  // namespace

Release::Release(int major, int minor, int patch) : numbers_{major, minor, std::max(patch, 0), 0}, spelled_(patch < 0 ? 2 : 3) {}

std::optional<Release> Release::parse_date(std::string_view text) {
  constexpr int kFirstYear = 2015, kLastYear = 2099;
  const bool nightly = text.size() == 8 && std::all_of(text.begin(), text.end(), is_digit);  // "20250811"
  const std::string dashed = nightly ? std::string(text.substr(0, 4)) + "-" + std::string(text.substr(4, 2)) + "-" + std::string(text.substr(6)) : std::string(text);
  Cursor at(dashed);
  const std::string_view year = at.digits(4);
  if (year.size() != 4 || !at.take("-")) return std::nullopt;
  const std::string_view month = at.digits(2);
  const bool with_day = at.take("-");
  const std::string_view day = with_day ? at.digits(2) : std::string_view("15");
  if (month.size() != 2 || day.size() != 2 || !at.at_end()) return std::nullopt;
  const int y = number_of(year), m = number_of(month), d = number_of(day);
  if (y < kFirstYear || y > kLastYear || m < 1 || m > 12 || d < 1 || d > 31) return std::nullopt;
  Release release;
  release.dated_ = true;
  release.to_the_day_ = with_day;
  release.date_ = y * kYear + m * kMonth + d;
  return release;
}

Release Release::of_day(int day) {
  Release release;
  release.dated_ = release.to_the_day_ = true;
  release.date_ = day;
  return release;
}

std::optional<Release> Release::parse(std::string_view text) {
  constexpr std::size_t kMostDigits = 5, kMostText = 80;
  if (text.size() > kMostText) return std::nullopt;
  if (std::optional<Release> date = parse_date(text)) return date;
  Cursor at(text);
  if (!at.take("core_v") && !at.take("core_r")) at.take("v");
  Release release;
  do {
    const std::string_view digits = at.digits(kMostDigits);
    if (digits.empty()) return std::nullopt;
    if (release.spelled_ == kMostNumbers) continue;  // a build's fifth number
    const auto i = release.spelled_++;
    release.numbers_[i] = number_of(digits);
    if (digits.size() == 2 && digits[0] == '0') release.padded_ = static_cast<std::uint8_t>(release.padded_ | (1U << i));
  } while (at.take_dot());
  const bool lone = release.spelled_ == 1;  // "5" is a release, "6243040" a commit and "5rc" nothing
  if (lone && (!at.at_end() || release.numbers_[0] >= 100)) return std::nullopt;
  if (!is_suffix(at.rest())) return std::nullopt;
  constexpr std::string_view kNightly = "dev";
  if (const std::size_t dev = at.rest().find(kNightly); dev != std::string_view::npos)
    if (const std::optional<Release> day = parse_date(at.rest().substr(dev + kNightly.size(), 8))) release.date_ = day->date_;
  return release;
}

bool Release::since(int major, int minor, int patch) const {
  return numbers_ >= std::array<int, kMostNumbers>{major, minor, patch, 0};
}

bool Release::since_date(int year, int month, int day) const { return date_ >= year * kYear + month * kMonth + day; }

std::string Release::text() const {
  if (dated_) {
    const std::string month = fmt::format("{:04}-{:02}", date_ / kYear, date_ / kMonth % 100);
    return to_the_day_ ? fmt::format("{}-{:02}", month, date_ % kMonth) : month;
  }
  std::string text;
  for (int i = 0; i < spelled_; ++i)
    text += (i > 0 ? "." : "") + ((padded_ >> i & 1U) != 0 ? fmt::format("{:02}", numbers_[i]) : fmt::to_string(numbers_[i]));
  return text;
}

Release Release::with_numbers_of(const Release& other) const {
  Release release = *this;
  release.numbers_ = other.numbers_;
  return release;
}

Release Release::with_date(int date) const {
  Release release = *this;
  release.date_ = date;
  return release;
}

}  // namespace plimsoll
