#include "warm_python.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "child_process.hpp"

extern char** environ;

namespace plimsoll::cli {
namespace {

constexpr const char* kVariable = "PLIMSOLL_REHEARSE_WARM";  // the interpreter, a newline, and the socket's path
constexpr std::size_t kLongestLine = 64;

/// The address of a path; false where it is too long for one.
bool address_of(const std::string& path, sockaddr_un* address) {
  *address = {};
  address->sun_family = AF_UNIX;
  if (path.size() >= sizeof address->sun_path) return false;
  std::memcpy(address->sun_path, path.c_str(), path.size() + 1);
  return true;
}

/// A listening socket at that path, which the program that is started keeps; -1 where it cannot be.
int listen_at(const std::string& path) {
  sockaddr_un address;
  if (!address_of(path, &address)) return -1;
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  if (listener < 0) return -1;
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 && listen(listener, 1024) == 0) return listener;
  close(listener);
  return -1;
}

int connect_to(const std::string& path) {
  sockaddr_un address;
  if (!address_of(path, &address)) return -1;
  const int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connection >= 0 && connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return connection;
  if (connection >= 0) close(connection);
  return -1;
}

/// All of the text, our standard error with its first byte.
bool send_all(int connection, const std::string& text) {
  char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{const_cast<char*>(text.data()), 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int output = STDERR_FILENO;
  std::memcpy(CMSG_DATA(header), &output, sizeof output);
  if (sendmsg(connection, &message, MSG_NOSIGNAL) != 1) return false;
  for (std::size_t sent = 1; sent < text.size();) {
    const ssize_t more = send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (more <= 0) return false;
    sent += static_cast<std::size_t>(more);
  }
  return true;
}

/// Ours, with these; an empty value takes the variable away.
nlohmann::json environment_with(const std::vector<std::pair<std::string, std::string>>& more) {
  nlohmann::json environment = nlohmann::json::object();
  for (char** each = environ; *each != nullptr; ++each)
    if (const char* equals = std::strchr(*each, '=')) environment[std::string(*each, static_cast<std::size_t>(equals - *each))] = equals + 1;
  for (const auto& [name, value] : more) {
    if (value.empty())
      environment.erase(name);
    else
      environment[name] = value;
  }
  environment.erase(kVariable);
  return environment;
}

std::string request_of(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment) {
  std::error_code ignored;
  const nlohmann::json request{{"words", std::vector<std::string>(command.begin() + 1, command.end())},
                               {"environment", environment_with(environment)},
                               {"folder", std::filesystem::current_path(ignored).string()}};
  const std::string text = request.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return std::to_string(text.size()) + "\n" + text;
}

}  // namespace

bool runs_python(const std::vector<std::string>& command) {
  const std::string name = command.front().substr(command.front().rfind('/') + 1);
  if (name.rfind("python", 0) != 0 || command.size() < 2) return false;
  const std::string& first = command[1];
  return first == "-m" ? command.size() > 2 : first.size() > 3 && first.compare(first.size() - 3, 3, ".py") == 0;
}

WarmPython::WarmPython(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment) {
  const char* temporary = std::getenv("TMPDIR");
  folder_ = std::string(temporary && *temporary ? temporary : "/tmp") + "/plimsoll-warm-XXXXXX";
  if (!runs_python(command) || mkdtemp(folder_.data()) == nullptr) return;
  const std::string path = folder_ + "/socket";
  const int listener = listen_at(path);
  if (listener < 0) return;
  std::vector<std::string> words{command.front(), "-m", "plimsoll_rehearse.warm", std::to_string(listener)};
  words.insert(words.end(), command.begin() + 1, command.end());
  process_ = fork();
  if (process_ == 0) {
    become(words, environment);
    _exit(127);
  }
  close(listener);
  setenv(kVariable, (command.front() + "\n" + path).c_str(), 1);
}

WarmPython::~WarmPython() {
  unsetenv(kVariable);
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

WarmRun::WarmRun(const std::vector<std::string>& command, const std::vector<std::pair<std::string, std::string>>& environment) {
  const char* where = std::getenv(kVariable);
  const std::string python = command.front() + "\n";
  if (where == nullptr || std::strncmp(where, python.c_str(), python.size()) != 0 || !runs_python(command)) return;
  connection_ = connect_to(where + python.size());
  std::string line;
  if (connection_ < 0 || !send_all(connection_, request_of(command, environment)) || !read_line(&line, true)) return;
  process_ = static_cast<pid_t>(std::strtol(line.c_str(), nullptr, 10));
  if (process_ <= 1) process_ = -1;
}

WarmRun::~WarmRun() {
  if (connection_ >= 0) close(connection_);
}

/// False where none has come: yet, or at all, if it was waited for.
bool WarmRun::read_line(std::string* line, bool wait) {
  while (read_.find('\n') == std::string::npos) {
    char text[kLongestLine];
    const ssize_t got = recv(connection_, text, sizeof text, wait ? 0 : MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN)) {
      close(connection_);
      connection_ = -1;
    }
    if (got <= 0) return false;
    read_.append(text, static_cast<std::size_t>(got));
  }
  *line = read_.substr(0, read_.find('\n'));
  read_.erase(0, line->size() + 1);
  return true;
}

bool WarmRun::over(int* status, long* peak_kilobytes) {
  std::string line;
  if (connection_ >= 0 && read_line(&line, false)) {
    char* rest = nullptr;
    *status = static_cast<int>(std::strtol(line.c_str(), &rest, 10));
    *peak_kilobytes = std::strtol(rest, nullptr, 10);
    return true;
  }
  if (connection_ >= 0) return false;
  *status = SIGKILL;  // the Python that it was forked from is gone, and it with that
  return true;
}

}  // namespace plimsoll::cli
