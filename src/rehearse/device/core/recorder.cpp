#include "recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "settings.hpp"

namespace plimsoll::device {
namespace {

constexpr std::uint64_t kWindow = std::uint64_t{8} << 20;
constexpr std::size_t kLongestText = std::size_t{1} << 20;

std::uint64_t read_clock(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1000000000u + static_cast<std::uint64_t>(t.tv_nsec);
}

/// `%p` becomes the process id.
std::string with_process(std::string path) {
  const auto at = path.find("%p");
  return at == std::string::npos ? path : path.replace(at, 2, std::to_string(getpid()));
}

}  // namespace

std::uint64_t now_ns() { return read_clock(CLOCK_MONOTONIC); }

std::uint64_t Recorder::host_ns() const { return started_ns_ == 0 ? 0 : now_ns() - started_ns_; }

bool Recorder::open() {
  if (over_) return false;
  if (settings().record.empty()) {
    running_ = false;
    over_ = true;
    return false;
  }
  path_ = with_process(settings().record);
  const int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  file_ = ::open(path_.c_str(), flags, 0644);
  if (file_ < 0 && errno == EEXIST) {
    path_ += "." + std::to_string(getpid());
    file_ = ::open(path_.c_str(), flags, 0644);
  }
  if (file_ < 0 || !map_window()) {
    stop("cannot be written");
    return false;
  }
  started_ns_ = now_ns();
  record::FileHeader header{};
  std::memcpy(header.magic, record::kMagic, sizeof header.magic);
  header.version = record::kVersion;
  header.byte_order = record::kByteOrder;
  header.header_bytes = sizeof header;
  header.process = static_cast<std::uint32_t>(getpid());
  header.started_ns = read_clock(CLOCK_REALTIME);
  std::memcpy(window_, &header, sizeof header);
  position_ = sizeof header;
  return true;
}

/// Maps the window that starts on the page of `position_`.
bool Recorder::map_window() {
  const std::uint64_t page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t start = position_ / page * page;
  if (posix_fallocate(file_, static_cast<off_t>(start), static_cast<off_t>(kWindow)) != 0) return false;
  void* mapped = mmap(nullptr, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED, file_, static_cast<off_t>(start));
  if (mapped == MAP_FAILED) return false;
  window_ = static_cast<char*>(mapped);
  window_start_ = start;
  return true;
}

char* Recorder::reserve(std::size_t bytes) {
  if (position_ + bytes > window_start_ + kWindow) {
    munmap(window_, kWindow);
    window_ = nullptr;
    if (!map_window()) {
      stop("cannot grow (is the disk full?): it ends here");
      return nullptr;
    }
  }
  char* place = window_ + (position_ - window_start_);
  position_ += bytes;
  return place;
}

void Recorder::stop(const char* why) {
  complain("the record " + path_ + " " + why);
  abandon();
}

void Recorder::abandon() {
  running_ = false;
  over_ = true;
  if (window_ != nullptr) munmap(window_, kWindow);
  if (file_ >= 0) close(file_);
  window_ = nullptr;
  file_ = -1;
}

void Recorder::finish() {
  if (window_ == nullptr) return;
  running_ = true;
  record::End end{};
  end.events = events_ + 1;
  end.host_ns = host_ns();
  write(record::Kind::end, end);
  if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(position_)) != 0) complain("the record " + path_ + " keeps its trailing zeros");
  abandon();
}

std::uint32_t Recorder::intern(std::string_view text) {
  if (text.empty() || over_ || (window_ == nullptr && !on())) return 0;
  text = text.substr(0, kLongestText);
  const auto [entry, is_new] = names_.try_emplace(std::string(text), static_cast<std::uint32_t>(names_.size() + 1));
  if (is_new) {
    record::Name name{};
    name.id = entry->second;
    name.length = static_cast<std::uint32_t>(text.size());
    const bool paused = !running_;
    running_ = true;  // later events may refer to it
    write(record::Kind::name, name, text.data(), text.size());
    running_ = !paused;
  }
  return entry->second;
}

}  // namespace plimsoll::device
