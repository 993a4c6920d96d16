#include "run_device.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace plimsoll::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_interruption(int signal) {
  if (g_interrupted != 0) _exit(128 + signal);
  g_interrupted = 1;
}

}  // namespace

void watch_for_interruption() {
  std::signal(SIGINT, on_interruption);
  std::signal(SIGTERM, on_interruption);
}

bool interrupted() { return g_interrupted != 0; }

namespace {

/// What a log gets of a long measurement: a line each tenth.
void log_progress(const MeasureProgress& progress) {
  constexpr double kLong = 60;  // seconds
  if (progress.done == 0 || progress.done * 10 / progress.total == (progress.done - 1) * 10 / progress.total) return;
  if (progress.elapsed + progress.remaining < kLong) return;
  std::fprintf(stderr, "plimsoll: measuring, %zu of %zu, about %.0f s left\n", progress.done, progress.total, progress.remaining);
}

}  // namespace

void draw_progress(const MeasureProgress& progress) {
  if (!isatty(STDERR_FILENO)) return log_progress(progress);
  constexpr int kWidth = 30;
  const double share = progress.total == 0 ? 1 : static_cast<double>(progress.done) / static_cast<double>(progress.total);
  const int filled = static_cast<int>(share * kWidth);
  std::string bar(static_cast<std::size_t>(filled), '#');
  bar.resize(kWidth, '.');
  std::fprintf(stderr, "\r[%s] %zu of %zu, %.0f s left  %-40.40s", bar.c_str(), progress.done, progress.total, progress.remaining,
               progress.what.c_str());
  std::fflush(stderr);
}

void clear_progress() {
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r%-110s\r", "");
}

}  // namespace plimsoll::cli
