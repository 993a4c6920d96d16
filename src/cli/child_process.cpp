#include "child_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "warm_python.hpp"

namespace plimsoll::cli {
namespace {

using Clock = std::chrono::steady_clock;

volatile std::sig_atomic_t asked_to_end = 0;

/// While it lives, signals that would end us are noted: the child's group, which a terminal's Ctrl-C does not reach, is ended first.
class EndRequests {
 public:
  EndRequests() {
    asked_to_end = 0;
    struct sigaction noted {};
    noted.sa_handler = [](int signal) { asked_to_end = signal; };
    for (std::size_t i = 0; i < kSignals; ++i) sigaction(kEnding[i], &noted, &before_[i]);
  }
  ~EndRequests() {
    for (std::size_t i = 0; i < kSignals; ++i) sigaction(kEnding[i], &before_[i], nullptr);
  }
  EndRequests(const EndRequests&) = delete;
  EndRequests& operator=(const EndRequests&) = delete;

 private:
  static constexpr std::size_t kSignals = 3;
  static constexpr int kEnding[kSignals] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction before_[kSignals];
};

/// In the child: never returns. What goes wrong is written to `problem_pipe`, which a successful exec closes.
[[noreturn]] void become_or_tell(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment,
                                 int problem_pipe) {
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing >= 0) dup2(nothing, STDIN_FILENO);
  become(command, environment);
  const int why = errno;
  [[maybe_unused]] const auto written = write(problem_pipe, &why, sizeof why);
  _exit(127);
}

/// What is waited for: a child, or a run that was forked for us.
struct Awaited {
  pid_t process = -1;
  WarmRun* warm = nullptr;
  int status = 0;
  long peak_kilobytes = 0;

  bool over() {
    if (warm != nullptr) return warm->over(&status, &peak_kilobytes);
    rusage usage{};
    const pid_t done = wait4(process, &status, WNOHANG, &usage);
    if (done == process) peak_kilobytes = usage.ru_maxrss;
    return done == process || (done < 0 && errno != EINTR);
  }
};

/// Waits until it ended or `until`, or until we are asked to end, or `enough` says so; true when it ended.
template <class Enough>
bool ended_by(Awaited& child, Clock::time_point until, Enough enough) {
  while (true) {
    if (child.over()) return true;
    if (asked_to_end != 0 || Clock::now() >= until || enough()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool ended_by(Awaited& child, Clock::time_point until) {
  return ended_by(child, until, [] { return false; });
}

/// Parent of a process, from /proc; 0 when it is gone.
pid_t parent_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  std::string text;
  std::getline(file, text, '\0');  // a process that ends while it is read is gone, too: an iterator over its buffer would throw
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  int parent = 0;
  char state = 0;
  if (name_end == std::string::npos || std::sscanf(text.c_str() + name_end + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

/// Ends all that descends from us: what a child started in other process groups or sessions has become ours, since we take orphans.
void end_descendants() {
  for (int round = 0; round < 100; ++round) {
    std::map<pid_t, pid_t> parents;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.find_first_not_of("0123456789") == std::string::npos) parents[std::atoi(name.c_str())] = parent_of(name);
    }
    bool any = false;
    for (const auto& [process, parent] : parents) {
      pid_t above = parent;
      for (std::size_t depth = 0; above > 1 && above != getpid() && depth < parents.size(); ++depth) {
        const auto found = parents.find(above);
        above = found == parents.end() ? 0 : found->second;
      }
      if (above != getpid()) continue;
      kill(process, SIGKILL);
      any = true;
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (!any) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

namespace {

/// From the start of the child to the end of all that it started.
void see_to_its_end(Awaited child, double limit_seconds, int ask_signal, const ChildWatch& watch, ChildResult& result) {
  const auto until = after(limit_seconds);
  bool done_and_hangs = false;
  const bool ended = ended_by(child, until, [&] { return done_and_hangs = watch.is_done && watch.is_done(child.process); });
  const auto interrupted = [&] { return asked_to_end != 0; };
  while (ended && !interrupted() && watch.others_run && Clock::now() < until && watch.others_run())
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  result.interrupted_by = asked_to_end;
  asked_to_end = 0;
  result.timed_out =
      result.interrupted_by == 0 && !done_and_hangs && Clock::now() >= until && (!ended || (watch.others_run && watch.others_run()));
  if (result.timed_out) {
    kill(-child.process, ask_signal);
    if (!ended) ended_by(child, after(5));
  }
  kill(-child.process, SIGKILL);
  if (!ended) ended_by(child, after(5));
  end_descendants();
  result.exit_code = done_and_hangs ? 0 : WIFEXITED(child.status) ? WEXITSTATUS(child.status) : 128 + WTERMSIG(child.status);
  result.peak_kilobytes = child.peak_kilobytes;
}

/// A child that runs the command; -1 and why where it cannot be.
pid_t start(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment, std::string* problem) {
  int problem_pipe[2];
  if (pipe2(problem_pipe, O_CLOEXEC) != 0) {
    *problem = std::strerror(errno);
    return -1;
  }
  const pid_t child = fork();
  if (child == 0) become_or_tell(command, environment, problem_pipe[1]);
  close(problem_pipe[1]);
  int why = 0;
  const bool failed = child < 0 || read(problem_pipe[0], &why, sizeof why) == sizeof why;
  close(problem_pipe[0]);
  if (!failed) return child;
  *problem = std::strerror(child < 0 ? errno : why);
  Awaited failing{child};
  if (child > 0) ended_by(failing, after(1));
  return -1;
}

}  // namespace

void become(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  for (const auto& [name, value] : environment) {
    if (value.empty())
      unsetenv(name.c_str());
    else
      setenv(name.c_str(), value.c_str(), 1);
  }
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execvp(words.front(), words.data());
}

ChildResult run_child(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment,
                      double limit_seconds, int ask_signal, const ChildWatch& watch) {
  ChildResult result;
  WarmRun warm(command, environment);
  const auto begun = Clock::now();
  const EndRequests end_requests;
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Awaited child;
  child.warm = warm.process() > 0 ? &warm : nullptr;
  child.process = child.warm != nullptr ? warm.process() : start(command, environment, &result.problem);
  if (child.process < 0) return result;
  result.started = true;
  see_to_its_end(child, limit_seconds, ask_signal, watch, result);
  result.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  return result;
}

std::string output_of(const std::vector<std::string>& command) {
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(output[1], STDOUT_FILENO);
    const int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDERR_FILENO);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execvp(words.front(), words.data());
    _exit(127);
  }
  close(output[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t got = 1; child > 0 && text.size() < (64U << 10U) && (got = read(output[0], buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(got));
  close(output[0]);
  int status = 1;
  if (child > 0) waitpid(child, &status, 0);
  return status == 0 ? text : std::string();
}

}  // namespace plimsoll::cli
