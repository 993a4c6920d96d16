#include "progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace plimsoll::cli {
namespace {

volatile std::sig_atomic_t asked_to_stop = 0;

}  // namespace

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0), start_(Clock::now()), phase_start_(start_), shown_(start_) {
  asked_to_stop = 0;
  struct sigaction noted = {};
  noted.sa_handler = [](int) {
    if (asked_to_stop) std::_Exit(130);  // asked twice: at once
    asked_to_stop = 1;
  };
  sigaction(SIGINT, &noted, nullptr);
  sigaction(SIGTERM, &noted, nullptr);  // a scheduler that takes the machine back
}

Progress::~Progress() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (terminal_ && phase_ != nullptr) std::fputs("\r\033[K", stderr);
}

bool Progress::interrupted() { return asked_to_stop != 0; }

void Progress::log(Clock::time_point now, const char* phase, std::uint64_t done, std::uint64_t of, const std::string& remark) {
  constexpr std::chrono::seconds kSilent{1}, kBetween{10};
  if (now - start_ < kSilent || (logged_ && now - *logged_ < kBetween)) return;
  logged_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  fmt::print(stderr, "plimsoll: {:.0f} s, {}: {} of {}{}{}\n", seconds, phase, done, of, remark.empty() ? "" : ", ", remark);
  std::fflush(stderr);
}

bool Progress::show(const char* phase, std::uint64_t done, std::uint64_t of, const std::string& remark) {
  if (asked_to_stop) return false;
  const auto now = Clock::now();
  if (!terminal_) {
    log(now, phase, done, of, remark);
    return true;
  }
  if (phase_ == nullptr || std::strcmp(phase, phase_) != 0) {
    phase_ = phase;
    phase_start_ = now;
  } else if (now - shown_ < std::chrono::milliseconds(100)) {
    return true;
  }
  shown_ = now;
  constexpr int kCells = 24;
  const double share = of > 0 ? static_cast<double>(done) / static_cast<double>(of) : 0;
  const double seconds = std::chrono::duration<double>(now - phase_start_).count();
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * kCells);
  std::string line = fmt::format("\r\033[K{:<10} [{}{}] {:3.0f} %", phase, std::string(static_cast<std::size_t>(filled), '#'),
                                 std::string(static_cast<std::size_t>(kCells - filled), '.'), 100 * share);
  if (seconds > 0.5 && done > 0)
    line += fmt::format("  {:.3g}/s, {:.0f} s left", static_cast<double>(done) / seconds, seconds * (1 / share - 1));
  if (!remark.empty()) line += "  " + remark;
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  return true;
}

}  // namespace plimsoll::cli
